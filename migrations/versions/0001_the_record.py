"""The record: runs, policies, cycles, decisions, actions, lease, holds, people's acts.

Revision ID: 0001
Revises:

Fixed from the first day (design, section 12.7): every state of an action, the lease token, the
source and run of every row, the codec's version, times as UTC microseconds, reason codes apart.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = ("action_events", "acts")


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "action_events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_action_events")),
    )
    op.create_index(
        "ix_action_events_action",
        "action_events",
        ["cluster", "kind", "seq", "pool", "ordinal"],
        unique=False,
    )
    op.create_table(
        "acts",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.String(length=253), nullable=False),
        sa.Column("act", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=253), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acts")),
    )
    op.create_index("ix_acts_at", "acts", ["cluster", "at"], unique=False)
    op.create_table(
        "holds",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=True),
        sa.Column("author", sa.String(length=253), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("lifted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
    )
    op.create_index("ix_holds_open", "holds", ["cluster", "lifted_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("holder", sa.String(length=253), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_leases")),
    )
    op.create_table(
        "policy_versions",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("git_commit", sa.String(length=80), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("first_seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "content_hash", name=op.f("pk_policy_versions")),
    )
    op.create_table(
        "reason_codes",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reason_codes")),
        sa.UniqueConstraint("code", name=op.f("uq_reason_codes_code")),
    )
    op.create_table(
        "runs",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("run_id", sa.String(length=63), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("code_version", sa.String(length=32), nullable=False),
        sa.CheckConstraint(
            "source IN ('live', 'backfill', 'backtest', 'demo')", name=op.f("ck_runs_known_source")
        ),
        sa.PrimaryKeyConstraint("cluster", "run_id", name=op.f("pk_runs")),
    )
    op.create_table(
        "cycles",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=63), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("code_version", sa.String(length=32), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("policies_hash", sa.String(length=64), nullable=False),
        sa.Column("plan_hash", sa.String(length=64), nullable=False),
        sa.Column("observation", sa.LargeBinary(), nullable=False),
        sa.Column("state_before", sa.LargeBinary(), nullable=False),
        sa.Column("state_after", sa.LargeBinary(), nullable=False),
        sa.Column("forecast", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("kind IN ('weights', 'capacity')", name=op.f("ck_cycles_known_kind")),
        sa.ForeignKeyConstraint(
            ["cluster", "policies_hash"],
            ["policy_versions.cluster", "policy_versions.content_hash"],
            name=op.f("fk_cycles_cluster"),
        ),
        sa.ForeignKeyConstraint(
            ["cluster", "run_id"], ["runs.cluster", "runs.run_id"], name=op.f("fk_cycles_cluster")
        ),
        sa.PrimaryKeyConstraint("cluster", "kind", "seq", name=op.f("pk_cycles")),
    )
    op.create_index("ix_cycles_started", "cycles", ["cluster", "started_at"], unique=False)
    op.create_table(
        "decisions",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(length=32), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("reason_id", sa.Integer(), nullable=False),
        sa.Column("size_before", sa.Double(), nullable=True),
        sa.Column("size_after", sa.Double(), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("decision", sa.LargeBinary(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=True),
        sa.Column("grade", sa.String(length=32), nullable=True),
        sa.Column("alternatives", sa.Text(), nullable=True),
        sa.Column("approved_by", sa.String(length=253), nullable=True),
        sa.CheckConstraint("kind IN ('weights', 'capacity')", name=op.f("ck_decisions_known_kind")),
        sa.CheckConstraint("mode IN ('observe', 'recommend', 'auto')", name=op.f("ck_decisions_known_mode")),
        sa.CheckConstraint(
            "outcome IN ('change', 'nothing_to_do', 'held', 'failed')",
            name=op.f("ck_decisions_known_outcome"),
        ),
        sa.ForeignKeyConstraint(
            ["cluster", "kind", "seq"],
            ["cycles.cluster", "cycles.kind", "cycles.seq"],
            name=op.f("fk_decisions_cluster"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["reason_id"], ["reason_codes.id"], name=op.f("fk_decisions_reason_id")),
        sa.PrimaryKeyConstraint("cluster", "kind", "seq", "pool", name=op.f("pk_decisions")),
    )
    op.create_index("ix_decisions_pool", "decisions", ["cluster", "pool", "decided_at"], unique=False)
    op.create_index("ix_decisions_reason", "decisions", ["cluster", "reason_id", "decided_at"], unique=False)
    op.create_index("ix_decisions_time", "decisions", ["cluster", "decided_at"], unique=False)
    op.create_table(
        "actions",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("gateway", sa.String(length=253), nullable=False),
        sa.Column("instance", sa.String(length=253), nullable=True),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=True),
        sa.Column("reason_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "action IN ('set_weight', 'set_limit', 'close', 'open', 'set_instances')",
            name=op.f("ck_actions_known_action"),
        ),
        sa.CheckConstraint(
            "state IN ('proposed', 'awaiting', 'approved', 'rejected', 'applying', 'applied', 'unchanged', "
            "'refused', 'unknown', 'failed', 'abandoned', 'superseded', 'expired', 'reverted')",
            name=op.f("ck_actions_known_state"),
        ),
        sa.ForeignKeyConstraint(
            ["cluster", "kind", "seq", "pool"],
            ["decisions.cluster", "decisions.kind", "decisions.seq", "decisions.pool"],
            name=op.f("fk_actions_cluster"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["reason_id"], ["reason_codes.id"], name=op.f("fk_actions_reason_id")),
        sa.PrimaryKeyConstraint("cluster", "kind", "seq", "pool", "ordinal", name=op.f("pk_actions")),
    )
    op.create_index("ix_actions_state", "actions", ["cluster", "state"], unique=False)
    for table in APPEND_ONLY:
        _refuse_changes(table)


def downgrade() -> None:
    """Remove everything, triggers first where they outlive their table."""
    for table in APPEND_ONLY:
        _allow_changes(table)
    op.drop_index("ix_actions_state", table_name="actions")
    op.drop_table("actions")
    op.drop_index("ix_decisions_time", table_name="decisions")
    op.drop_index("ix_decisions_reason", table_name="decisions")
    op.drop_index("ix_decisions_pool", table_name="decisions")
    op.drop_table("decisions")
    op.drop_index("ix_cycles_started", table_name="cycles")
    op.drop_table("cycles")
    op.drop_table("runs")
    op.drop_table("reason_codes")
    op.drop_table("policy_versions")
    op.drop_table("leases")
    op.drop_index("ix_holds_open", table_name="holds")
    op.drop_table("holds")
    op.drop_index("ix_acts_at", table_name="acts")
    op.drop_table("acts")
    op.drop_index("ix_action_events_action", table_name="action_events")
    op.drop_table("action_events")


def _refuse_changes(table: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN RAISE EXCEPTION '{table} is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )


def _allow_changes(table: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(f"DROP TRIGGER {table}_no_{verb}")
        return
    op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
    op.execute(f"DROP FUNCTION {table}_refuse()")
