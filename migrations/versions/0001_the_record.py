"""The record: runs, cycles with their inputs, decisions, actions, and what people did.

The first migration. It fixes what is dear to change later: cluster first in every key, where a
run's world came from (`source`, `run_id`), instants as UTC integer microseconds, codec numbers
beside bodies, all states of an action with the moves between them, and reason codes in a table
of their own. Words in this file are literal and not the program's own: a migration must not
change when the program does. The way down drops everything, and with it the record.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KINDS = ("weights", "capacity")
SOURCES = ("live", "backfill", "backtest", "demo")
MODES = ("observe", "recommend", "auto")
OUTCOMES = ("change", "nothing_to_do", "held", "failed")
EFFECTS = ("hold", "pin_instances", "pin_weight")

FIRST_STATES = ("proposed", "awaiting", "applying")
MOVES: Mapping[str, Sequence[str]] = {
    "proposed": ("expired", "superseded"),
    "awaiting": ("approved", "rejected", "expired", "superseded"),
    "approved": ("applying", "abandoned", "expired", "superseded"),
    "rejected": (),
    "applying": ("applied", "unchanged", "refused", "failed", "abandoned", "unknown", "superseded"),
    "applied": ("reverted",),
    "unchanged": (),
    "refused": (),
    "unknown": ("applied", "unchanged", "refused", "failed", "abandoned", "superseded"),
    "failed": (),
    "abandoned": (),
    "superseded": (),
    "expired": (),
    "reverted": (),
}

TABLES = (
    "acts",
    "holds",
    "leases",
    "action_events",
    "actions",
    "decisions",
    "streaks",
    "memory",
    "frames",
    "cycles",
    "policy_versions",
    "sequences",
    "runs",
    "action_moves",
    "action_states",
    "reason_codes",
)

CYCLE_KEY = ("cluster", "kind", "seq")
DECISION_KEY = (*CYCLE_KEY, "pool")
ACTION_KEY = (*DECISION_KEY, "ordinal")
RUN_KEY = ("cluster", "run_id", "source")
POLICIES_KEY = ("cluster", "policies_hash")


def upgrade() -> None:
    """All tables, the words they use, and the triggers that keep promises."""
    _vocabularies()
    _runs()
    _cycles()
    _streaks()
    _decisions()
    _actions()
    _people()
    _triggers()


def downgrade() -> None:
    """Nothing of it is left."""
    for table in TABLES:
        op.drop_table(table)  # with its indexes and triggers
    if op.get_context().dialect.name == "postgresql":
        for function in ("refuse_change", "refuse_orphaning", "check_action_birth", "check_action_move"):
            op.execute(f"DROP FUNCTION {function}()")


def _vocabularies() -> None:
    op.create_table(
        "reason_codes",
        sa.Column("code_id", sa.Integer(), nullable=False),
        _text("code"),
        _key("reason_codes", "code_id"),
        sa.UniqueConstraint("code", name=op.f("uq_reason_codes_code")),
    )
    states = op.create_table(
        "action_states",
        _word("state"),
        sa.Column("first", sa.Boolean(), nullable=False),
        _key("action_states", "state"),
    )
    moves = op.create_table(
        "action_moves",
        _word("before"),
        _word("after"),
        _key("action_moves", "before", "after"),
        _refers("action_moves", ["before"], "action_states", ["state"]),
        _refers("action_moves", ["after"], "action_states", ["state"]),
    )
    op.bulk_insert(states, [{"state": state, "first": state in FIRST_STATES} for state in MOVES])
    op.bulk_insert(
        moves, [{"before": before, "after": after} for before, afters in MOVES.items() for after in afters]
    )


def _runs() -> None:
    op.create_table(
        "runs",
        *map(_text, ("cluster", "run_id")),
        _word("source"),
        _text("code_version"),
        _whole("started_at"),
        _key("runs", "cluster", "run_id"),
        sa.UniqueConstraint(*RUN_KEY, name=op.f("uq_runs_cluster_run_id_source")),
        _one_of("runs", "source", SOURCES),
    )
    op.create_table(
        "sequences",
        _text("cluster"),
        _word("kind"),
        _whole("last_seq"),
        _key("sequences", "cluster", "kind"),
        _one_of("sequences", "kind", KINDS),
    )
    op.create_table(
        "policy_versions",
        *map(_text, ("cluster", "policies_hash", "content_hash", "git_commit")),
        *map(_whole, ("first_seen_at", "codec")),
        _body("body"),
        _key("policy_versions", *POLICIES_KEY),
    )


def _cycles() -> None:
    op.create_table(
        "cycles",
        *_cycle_columns(),
        *_run_columns(),
        *map(_whole, ("observed_at", "started_at")),
        sa.Column("duration_s", sa.Double(), nullable=False),
        _text("code_version"),
        _whole("lease_token"),
        *map(_text, ("policies_hash", "plan_hash", "next_state_hash")),
        _key("cycles", *CYCLE_KEY),
        _refers("cycles", RUN_KEY, "runs", RUN_KEY),
        _refers("cycles", POLICIES_KEY, "policy_versions", POLICIES_KEY),
        _one_of("cycles", "kind", KINDS),
        _one_of("cycles", "source", SOURCES),
    )
    _index("cycles", "cluster", "run_id", "kind", "seq")
    _index("cycles", "cluster", "observed_at")
    op.create_table(
        "frames",
        *_cycle_columns(),
        _whole("codec"),
        *map(_body, ("observation", "state", "forecast", "next_state")),
        _key("frames", *CYCLE_KEY),
        _refers("frames", CYCLE_KEY, "cycles", CYCLE_KEY, ondelete="CASCADE"),
        _one_of("frames", "kind", KINDS),
    )
    op.create_table(
        "memory",
        *map(_text, ("cluster", "scope")),
        _word("kind"),
        *map(_whole, ("seq", "codec")),
        _body("state"),
        _key("memory", "cluster", "scope"),
        _one_of("memory", "kind", KINDS),
    )


def _streaks() -> None:
    op.create_table(
        "streaks",
        _text("cluster"),
        _word("kind"),
        _text("pool"),
        _whole("first_seq"),
        *_run_columns(),
        *map(_whole, ("first_at", "last_seq", "last_at", "count")),
        _word("outcome"),
        sa.Column("code_id", sa.Integer(), nullable=False),
        _text("fingerprint"),
        _key("streaks", "cluster", "kind", "pool", "first_seq"),
        _refers("streaks", RUN_KEY, "runs", RUN_KEY),
        _refers("streaks", ["code_id"], "reason_codes", ["code_id"]),
        _one_of("streaks", "kind", KINDS),
        _one_of("streaks", "source", SOURCES),
        _one_of("streaks", "outcome", OUTCOMES),
    )
    _index("streaks", "cluster", "first_at")
    for narrower in ("pool", "code_id", "outcome"):
        _index("streaks", "cluster", narrower, "first_at")


def _decisions() -> None:
    streak = ("cluster", "kind", "pool", "streak_seq")
    op.create_table(
        "decisions",
        *_cycle_columns(),
        _text("pool"),
        *_run_columns(),
        _whole("decided_at"),
        *map(_word, ("mode", "outcome")),
        sa.Column("code_id", sa.Integer(), nullable=False),
        _text("policies_hash"),
        *map(_whole, ("streak_seq", "codec")),
        _body("body"),
        *(sa.Column(name, sa.JSON()) for name in ("expected", "alternatives")),
        *(sa.Column(name, sa.Text()) for name in ("approved_by", "grade")),
        sa.Column("graded_at", sa.BigInteger()),
        sa.Column("grade_detail", sa.JSON()),
        _key("decisions", *DECISION_KEY),
        _refers("decisions", CYCLE_KEY, "cycles", CYCLE_KEY, ondelete="CASCADE"),
        _refers("decisions", RUN_KEY, "runs", RUN_KEY),
        _refers("decisions", POLICIES_KEY, "policy_versions", POLICIES_KEY),
        _refers("decisions", streak, "streaks", ("cluster", "kind", "pool", "first_seq")),
        _refers("decisions", ["code_id"], "reason_codes", ["code_id"]),
        _one_of("decisions", "kind", KINDS),
        _one_of("decisions", "source", SOURCES),
        _one_of("decisions", "mode", MODES),
        _one_of("decisions", "outcome", OUTCOMES),
    )
    _index("decisions", *streak)
    _index("decisions", "cluster", "decided_at")
    for narrower in ("pool", "code_id", "outcome"):
        _index("decisions", "cluster", narrower, "decided_at")


def _actions() -> None:
    op.create_table(
        "actions",
        *_cycle_columns(),
        _text("pool"),
        _whole("ordinal"),
        *_run_columns(),
        _word("action_kind"),
        _text("gateway"),
        sa.Column("instance", sa.Text()),
        _text("target"),
        _whole("level"),
        sa.Column("seen", sa.BigInteger()),
        sa.Column("code_id", sa.Integer(), nullable=False),
        _word("state"),
        _text("reason"),
        _whole("changed_at"),
        _key("actions", *ACTION_KEY),
        _refers("actions", DECISION_KEY, "decisions", DECISION_KEY, ondelete="CASCADE"),
        _refers("actions", RUN_KEY, "runs", RUN_KEY),
        _refers("actions", ["code_id"], "reason_codes", ["code_id"]),
        _refers("actions", ["state"], "action_states", ["state"]),
        _one_of("actions", "kind", KINDS),
        _one_of("actions", "source", SOURCES),
    )
    _index("actions", "cluster", "state", "target")
    _index("actions", "cluster", "target", "changed_at")
    op.create_table(
        "action_events",
        *_cycle_columns(),
        _text("pool"),
        *map(_whole, ("ordinal", "n", "at")),
        _word("state"),
        _text("reason"),
        _key("action_events", *ACTION_KEY, "n"),
        _refers("action_events", ACTION_KEY, "actions", ACTION_KEY, ondelete="CASCADE"),
        _refers("action_events", ["state"], "action_states", ["state"]),
        _one_of("action_events", "kind", KINDS),
    )


def _people() -> None:
    op.create_table(
        "leases",
        *map(_text, ("cluster", "name", "holder")),
        _whole("token"),
        sa.Column("expires_at", sa.BigInteger()),
        _key("leases", "cluster", "name"),
    )
    op.create_table(
        "holds",
        *map(_text, ("cluster", "hold_id")),
        _word("effect"),
        _text("pool"),
        sa.Column("instance", sa.Text()),
        sa.Column("level", sa.BigInteger()),
        *map(_text, ("author", "reason")),
        _whole("since"),
        *(sa.Column(name, sa.BigInteger()) for name in ("until", "lifted_at")),
        _key("holds", "cluster", "hold_id"),
        _one_of("holds", "effect", EFFECTS),
    )
    _index("holds", "cluster", "lifted_at")
    op.create_table(
        "acts",
        *map(_text, ("cluster", "act_id")),
        _whole("at"),
        _word("source"),
        sa.Column("run_id", sa.Text()),
        *map(_text, ("author", "act", "subject", "reason")),
        sa.Column("detail", sa.JSON()),
        _key("acts", "cluster", "act_id"),
        _one_of("acts", "source", SOURCES),
    )
    _index("acts", "cluster", "at")


def _triggers() -> None:
    chosen = POSTGRESQL_TRIGGERS if op.get_context().dialect.name == "postgresql" else SQLITE_TRIGGERS
    for statement in chosen:
        op.execute(statement)


# `INSERT OR REPLACE` skips delete triggers unless `recursive_triggers` is on, which another
# program's connection may not have: so a row that is there already is refused before the insert.
SQLITE_TRIGGERS = (
    """CREATE TRIGGER acts_no_update BEFORE UPDATE ON acts
    BEGIN SELECT RAISE(ABORT, 'acts are append only: an act cannot be changed'); END""",
    """CREATE TRIGGER acts_no_delete BEFORE DELETE ON acts
    BEGIN SELECT RAISE(ABORT, 'acts are append only: an act cannot be deleted'); END""",
    """CREATE TRIGGER acts_no_replace BEFORE INSERT ON acts
    WHEN EXISTS (SELECT 1 FROM acts WHERE cluster = NEW.cluster AND act_id = NEW.act_id)
    BEGIN SELECT RAISE(ABORT, 'acts are append only: an act cannot be replaced'); END""",
    """CREATE TRIGGER action_events_no_update BEFORE UPDATE ON action_events
    BEGIN SELECT RAISE(ABORT, 'action events are append only'); END""",
    """CREATE TRIGGER action_events_no_delete BEFORE DELETE ON action_events
    WHEN EXISTS (SELECT 1 FROM actions WHERE cluster = OLD.cluster AND kind = OLD.kind
        AND seq = OLD.seq AND pool = OLD.pool AND ordinal = OLD.ordinal)
    BEGIN SELECT RAISE(ABORT, 'action events are append only'); END""",
    """CREATE TRIGGER actions_birth BEFORE INSERT ON actions
    WHEN NOT EXISTS (SELECT 1 FROM action_states WHERE state = NEW.state AND first)
    BEGIN SELECT RAISE(ABORT, 'an action cannot begin in this state'); END""",
    """CREATE TRIGGER actions_move BEFORE UPDATE OF state ON actions
    WHEN OLD.state <> NEW.state AND NOT EXISTS
        (SELECT 1 FROM action_moves WHERE before = OLD.state AND after = NEW.state)
    BEGIN SELECT RAISE(ABORT, 'an action cannot go from this state to that'); END""",
)

# TRUNCATE skips row triggers, so it has one of its own. No percent sign stands in these texts: drivers
# take it for a parameter.
POSTGRESQL_TRIGGERS = (
    """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append only',
            ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER acts_no_change BEFORE UPDATE OR DELETE ON acts
    FOR EACH ROW EXECUTE FUNCTION refuse_change()""",
    """CREATE TRIGGER acts_no_truncate BEFORE TRUNCATE ON acts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()""",
    """CREATE TRIGGER action_events_no_update BEFORE UPDATE ON action_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change()""",
    """CREATE FUNCTION refuse_orphaning() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM actions WHERE cluster = OLD.cluster AND kind = OLD.kind
                AND seq = OLD.seq AND pool = OLD.pool AND ordinal = OLD.ordinal) THEN
            RAISE EXCEPTION USING MESSAGE = 'action events are append only',
                ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN OLD;
    END $$""",
    """CREATE TRIGGER action_events_no_delete BEFORE DELETE ON action_events
    FOR EACH ROW EXECUTE FUNCTION refuse_orphaning()""",
    """CREATE TRIGGER action_events_no_truncate BEFORE TRUNCATE ON action_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()""",
    """CREATE FUNCTION check_action_birth() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM action_states WHERE state = NEW.state AND first) THEN
            RAISE EXCEPTION USING MESSAGE = 'an action cannot begin in state ' || NEW.state,
                ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END $$""",
    """CREATE TRIGGER actions_birth BEFORE INSERT ON actions
    FOR EACH ROW EXECUTE FUNCTION check_action_birth()""",
    """CREATE FUNCTION check_action_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM action_moves WHERE before = OLD.state AND after = NEW.state) THEN
            RAISE EXCEPTION USING MESSAGE = 'an action cannot go from ' || OLD.state || ' to ' || NEW.state,
                ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END $$""",
    """CREATE TRIGGER actions_move BEFORE UPDATE OF state ON actions
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION check_action_move()""",
)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _word(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(16), nullable=False)


def _whole(name: str) -> sa.Column[int]:
    """A whole number: a count, a sequence, a codec, or an instant in UTC microseconds."""
    return sa.Column(name, sa.BigInteger(), nullable=False)


def _body(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _cycle_columns() -> tuple[sa.Column[str], sa.Column[str], sa.Column[int]]:
    return _text("cluster"), _word("kind"), _whole("seq")


def _run_columns() -> tuple[sa.Column[str], sa.Column[str]]:
    return _text("run_id"), _word("source")


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def _refers(
    table: str, columns: Sequence[str], parent: str, parents: Sequence[str], ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        list(columns),
        [f"{parent}.{column}" for column in parents],
        name=op.f("_".join(("fk", table, *columns))),
        ondelete=ondelete,
    )


def _one_of(table: str, column: str, words: Sequence[str]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(f"ck_{table}_{column}"))


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f("_".join(("ix", table, *columns))), table, list(columns))
