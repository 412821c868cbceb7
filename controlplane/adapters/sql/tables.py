"""The record's tables, typed. `migrations/` creates them; a test holds both to be equal.

`cluster` is the first column of every key, except for vocabularies (reason codes, states and
moves of actions), which are the same words everywhere. Instants are UTC integer microseconds.
Every body is compressed canonical JSON with its codec's number beside it (`codec.py`).

Not here yet: demand history at 10 s.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Enum,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from controlplane.adapters.sql.codec import Instant
from controlplane.domain.ids import CycleKind, Source
from controlplane.domain.observation import Effect
from controlplane.domain.plan import ActionKind, ActionState, Outcome
from controlplane.domain.policy import Mode
from controlplane.ports import PageStatus

WORD_LENGTH = 16


def _word(words: type[StrEnum], name: str, *, closed: bool = True) -> Enum:
    """A column of words, stored as text. `closed`: the database itself refuses any other word."""
    return Enum(
        words,
        name=name,
        native_enum=False,
        create_constraint=closed,
        length=WORD_LENGTH,
        values_callable=lambda members: [member.value for member in members],
    )


Moment = Annotated[float, mapped_column(Instant)]
Key = Annotated[str, mapped_column(Text, primary_key=True)]
Seq = Annotated[int, mapped_column(BigInteger, primary_key=True, autoincrement=False)]
KindKey = Annotated[CycleKind, mapped_column(_word(CycleKind, "kind"), primary_key=True)]


class Base(DeclarativeBase):
    """All tables, with constraint names that every database agrees on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as declared
        str: Text,
        int: BigInteger,
        bytes: LargeBinary,
        dict[str, Any]: JSON,
        Source: _word(Source, "source"),
        Mode: _word(Mode, "mode"),
        Outcome: _word(Outcome, "outcome"),
        CycleKind: _word(CycleKind, "kind"),
        ActionKind: _word(ActionKind, "action_kind", closed=False),
        ActionState: _word(ActionState, "state", closed=False),
    }


def _run_of() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["cluster", "run_id", "source"], ["runs.cluster", "runs.run_id", "runs.source"]
    )


def _policies_of() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["cluster", "policies_hash"], ["policy_versions.cluster", "policy_versions.policies_hash"]
    )


def _cycle_of() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["cluster", "kind", "seq"], ["cycles.cluster", "cycles.kind", "cycles.seq"], ondelete="CASCADE"
    )


class ReasonCodeRow(Base):
    """Vocabulary: reason codes, so that lists filter by a number and not by text."""

    __tablename__ = "reason_codes"
    code_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    code: Mapped[str] = mapped_column(unique=True)


class ActionStateRow(Base):
    """Vocabulary: the states of an action. `first`: an action may be born in it."""

    __tablename__ = "action_states"
    state: Mapped[ActionState] = mapped_column(primary_key=True)
    first: Mapped[bool]


class ActionMoveRow(Base):
    """Vocabulary: which state may follow which. A trigger on `actions` reads it."""

    __tablename__ = "action_moves"
    before: Mapped[ActionState] = mapped_column(ForeignKey("action_states.state"), primary_key=True)
    after: Mapped[ActionState] = mapped_column(ForeignKey("action_states.state"), primary_key=True)


class RunRow(Base):
    """One life of a controller, or one backfill or backtest."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("cluster", "run_id", "source"),)
    cluster: Mapped[Key]
    run_id: Mapped[Key]
    source: Mapped[Source]
    code_version: Mapped[str]
    started_at: Mapped[Moment]


class SequenceRow(Base):
    """The last number given to a cycle. A table of its own: numbers stay unique after pruning."""

    __tablename__ = "sequences"
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    last_seq: Mapped[int]


class PolicyVersionRow(Base):
    """Policies with the profiles they name, stored once. `policies_hash`: of the whole content."""

    __tablename__ = "policy_versions"
    cluster: Mapped[Key]
    policies_hash: Mapped[Key]
    content_hash: Mapped[str]
    git_commit: Mapped[str]
    first_seen_at: Mapped[Moment]
    codec: Mapped[int]
    body: Mapped[bytes]


class CycleRow(Base):
    """One pass of the loop. `observed_at`: the instant it decided about; `duration_s`: how long
    observing and deciding took. The hashes are of the plan's and next state's canonical text."""

    __tablename__ = "cycles"
    __table_args__ = (
        _run_of(),
        _policies_of(),
        Index(None, "cluster", "run_id", "kind", "seq"),
        Index(None, "cluster", "observed_at"),
    )
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    seq: Mapped[Seq]
    run_id: Mapped[str]
    source: Mapped[Source]
    observed_at: Mapped[Moment]
    started_at: Mapped[Moment]
    duration_s: Mapped[float]
    code_version: Mapped[str]
    lease_token: Mapped[int]
    policies_hash: Mapped[str]
    plan_hash: Mapped[str]
    next_state_hash: Mapped[str]


class FrameRow(Base):
    """A cycle's inputs and next state. Apart from `cycles`: it is large, and kept for less long."""

    __tablename__ = "frames"
    __table_args__ = (_cycle_of(),)
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    seq: Mapped[Seq]
    codec: Mapped[int]
    observation: Mapped[bytes]
    state: Mapped[bytes]
    forecast: Mapped[bytes]
    next_state: Mapped[bytes]


class MemoryRow(Base):
    """The last next state, in a table of its own: pruning must never forget a cooldown.

    `scope`: see `scope.py`.
    """

    __tablename__ = "memory"
    cluster: Mapped[Key]
    scope: Mapped[Key]
    kind: Mapped[CycleKind]
    seq: Mapped[int]
    codec: Mapped[int]
    state: Mapped[bytes]


class StreakRow(Base):
    """Consecutive decisions of a pool that say the same, folded: lists show changes, not ticks.

    `fingerprint`: what makes two decisions the same (`streaks.py`).
    """

    __tablename__ = "streaks"
    __table_args__ = (
        _run_of(),
        Index(None, "cluster", "first_at"),
        Index(None, "cluster", "pool", "first_at"),
        Index(None, "cluster", "code_id", "first_at"),
        Index(None, "cluster", "outcome", "first_at"),
    )
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    pool: Mapped[Key]
    first_seq: Mapped[Seq]
    run_id: Mapped[str]
    source: Mapped[Source]
    first_at: Mapped[Moment]
    last_seq: Mapped[int]
    last_at: Mapped[Moment]
    count: Mapped[int]
    outcome: Mapped[Outcome]
    code_id: Mapped[int] = mapped_column(Integer, ForeignKey("reason_codes.code_id"))
    fingerprint: Mapped[str]


class DecisionRow(Base):
    """A cycle's answer for one pool. `body`: the whole decision with its explanation.

    Filled in later, and empty until then: `expected` (effect), `alternatives` (rejected, and
    why), `approved_by`, `grade` with its details.
    """

    __tablename__ = "decisions"
    __table_args__ = (
        _cycle_of(),
        _run_of(),
        _policies_of(),
        ForeignKeyConstraint(
            ["cluster", "kind", "pool", "streak_seq"],
            ["streaks.cluster", "streaks.kind", "streaks.pool", "streaks.first_seq"],
        ),
        Index(None, "cluster", "kind", "pool", "streak_seq"),
        Index(None, "cluster", "decided_at"),
        Index(None, "cluster", "pool", "decided_at"),
        Index(None, "cluster", "code_id", "decided_at"),
        Index(None, "cluster", "outcome", "decided_at"),
    )
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    seq: Mapped[Seq]
    pool: Mapped[Key]
    run_id: Mapped[str]
    source: Mapped[Source]
    decided_at: Mapped[Moment]
    mode: Mapped[Mode]
    outcome: Mapped[Outcome]
    code_id: Mapped[int] = mapped_column(Integer, ForeignKey("reason_codes.code_id"))
    policies_hash: Mapped[str]
    streak_seq: Mapped[int]
    codec: Mapped[int]
    body: Mapped[bytes]
    expected: Mapped[dict[str, Any] | None]
    alternatives: Mapped[dict[str, Any] | None]
    approved_by: Mapped[str | None]
    grade: Mapped[str | None]
    graded_at: Mapped[Moment | None]
    grade_detail: Mapped[dict[str, Any] | None]


class ActionRow(Base):
    """One level for one target, and how far it came. `reason`: why it is in this state.

    `target` says what the level is a level of (`lifecycle.target`).
    """

    __tablename__ = "actions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["cluster", "kind", "seq", "pool"],
            ["decisions.cluster", "decisions.kind", "decisions.seq", "decisions.pool"],
            ondelete="CASCADE",
        ),
        _run_of(),
        Index(None, "cluster", "state", "target"),
        Index(None, "cluster", "target", "changed_at"),
    )
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    seq: Mapped[Seq]
    pool: Mapped[Key]
    ordinal: Mapped[Seq]
    run_id: Mapped[str]
    source: Mapped[Source]
    action_kind: Mapped[ActionKind]
    gateway: Mapped[str]
    instance: Mapped[str | None]
    target: Mapped[str]
    level: Mapped[int]
    seen: Mapped[int | None]
    code_id: Mapped[int] = mapped_column(Integer, ForeignKey("reason_codes.code_id"))
    state: Mapped[ActionState] = mapped_column(ForeignKey("action_states.state"))
    reason: Mapped[str]
    changed_at: Mapped[Moment]


class ActionEventRow(Base):
    """Every state an action has been in, `n` from 0. Append only: triggers refuse updates, and
    deleting one whose action still stands (retention removes both)."""

    __tablename__ = "action_events"
    __table_args__ = (
        ForeignKeyConstraint(
            ["cluster", "kind", "seq", "pool", "ordinal"],
            ["actions.cluster", "actions.kind", "actions.seq", "actions.pool", "actions.ordinal"],
            ondelete="CASCADE",
        ),
    )
    cluster: Mapped[Key]
    kind: Mapped[KindKey]
    seq: Mapped[Seq]
    pool: Mapped[Key]
    ordinal: Mapped[Seq]
    n: Mapped[Seq]
    at: Mapped[Moment]
    state: Mapped[ActionState] = mapped_column(ForeignKey("action_states.state"))
    reason: Mapped[str]


class LoanRow(Base):
    """Capacity that `borrower` has from `lender`: `gpus` of `node`, held by `instance`. At most one is open
    for an instance, whose terms never change. `opened_by`, `closed_by`: the cycle that decided it
    (`demo:capacity:42`)."""

    __tablename__ = "loans"
    __table_args__ = (
        _run_of(),
        CheckConstraint("gpus > 0", name="gpus"),
        CheckConstraint("lender <> borrower", name="borrower"),
        CheckConstraint("(closed_at IS NULL) = (closed_by IS NULL)", name="closed"),
        Index(
            "uq_loans_open",
            "cluster",
            "source",
            "run_scope",
            "instance",
            unique=True,
            sqlite_where=text("closed_at IS NULL"),
            postgresql_where=text("closed_at IS NULL"),
        ),
        Index(None, "cluster", "opened_at"),
        Index(None, "cluster", "opened_by"),
        Index(None, "cluster", "closed_by"),
    )
    cluster: Mapped[Key]
    loan_id: Mapped[Key]
    run_id: Mapped[str]
    source: Mapped[Source]
    run_scope: Mapped[str]
    lender: Mapped[str]
    borrower: Mapped[str]
    instance: Mapped[str]
    node: Mapped[str]
    gpus: Mapped[int]
    opened_at: Mapped[Moment]
    opened_by: Mapped[str]
    open_code_id: Mapped[int] = mapped_column(Integer, ForeignKey("reason_codes.code_id"))
    due_at: Mapped[Moment | None]
    closed_at: Mapped[Moment | None]
    closed_by: Mapped[str | None]
    close_code_id: Mapped[int | None] = mapped_column(Integer, ForeignKey("reason_codes.code_id"))


class LoanEntryRow(Base):
    """One side of a booking: `gpus` come to an account, or (negative) leave it. `n` 0 and 1 open a loan, 2
    and 3 close it; each pair sums to zero. Append only, and written by the database with its loan."""

    __tablename__ = "loan_entries"
    __table_args__ = (
        ForeignKeyConstraint(["cluster", "loan_id"], ["loans.cluster", "loans.loan_id"]),
        CheckConstraint("n BETWEEN 0 AND 3", name="n"),
        Index(None, "cluster", "account"),
    )
    cluster: Mapped[Key]
    loan_id: Mapped[Key]
    n: Mapped[Seq]
    at: Mapped[Moment]
    account: Mapped[str]
    gpus: Mapped[int]


class LeaseRow(Base):
    """Who may act. `token` grows with every new holder. `expires_at` by the database's clock; NULL
    on SQLite, where the kernel's lock on a file ends with its holder."""

    __tablename__ = "leases"
    cluster: Mapped[Key]
    name: Mapped[Key]
    holder: Mapped[str]
    token: Mapped[int]
    expires_at: Mapped[Moment | None]


class HoldRow(Base):
    """A hold or an override. `pool` empty: the whole fleet. `instance`, `level`: for pins."""

    __tablename__ = "holds"
    __table_args__ = (Index(None, "cluster", "lifted_at"),)
    cluster: Mapped[Key]
    hold_id: Mapped[Key]
    effect: Mapped[Effect] = mapped_column(_word(Effect, "effect"))
    pool: Mapped[str]
    instance: Mapped[str | None]
    level: Mapped[int | None]
    author: Mapped[str]
    reason: Mapped[str]
    since: Mapped[Moment]
    until: Mapped[Moment | None]
    lifted_at: Mapped[Moment | None]


class ActRow(Base):
    """What people did. Append only: triggers refuse update, delete and replacement."""

    __tablename__ = "acts"
    __table_args__ = (Index(None, "cluster", "at"),)
    cluster: Mapped[Key]
    act_id: Mapped[Key]
    at: Mapped[Moment]
    source: Mapped[Source]
    run_id: Mapped[str | None]
    author: Mapped[str]
    act: Mapped[str]
    subject: Mapped[str]
    reason: Mapped[str]
    detail: Mapped[dict[str, Any] | None]


class PageRow(Base):
    """An alert that somebody was told of: one row from its start to its end, however often it was told.

    `notifications`: how often. `decision`: the id of the one that stands nearest (`pagelist.nearest`),
    as of the last notification; text and no reference, since pages outlive pruned decisions.
    """

    __tablename__ = "pages"
    __table_args__ = (Index(None, "cluster", "starts_at"), Index(None, "cluster", "pool", "starts_at"))
    cluster: Mapped[Key]
    fingerprint: Mapped[Key]
    starts_at: Mapped[float] = mapped_column(Instant, primary_key=True, autoincrement=False)
    alertname: Mapped[str]
    severity: Mapped[str]
    pool: Mapped[str]
    labels: Mapped[dict[str, Any]]
    summary: Mapped[str]
    runbook: Mapped[str]
    status: Mapped[PageStatus] = mapped_column(_word(PageStatus, "status"))
    first_seen_at: Mapped[Moment]
    last_seen_at: Mapped[Moment]
    resolved_at: Mapped[Moment | None]
    notifications: Mapped[int]
    decision: Mapped[str | None]
