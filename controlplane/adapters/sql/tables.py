"""The record's tables. `cluster` is the first column of every key; times are UTC microseconds.

The schema a database really has comes from `migrations/`; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from controlplane.domain.ids import CycleKind
from controlplane.domain.plan import ActionKind, ActionState, Outcome
from controlplane.domain.policy import Mode

SOURCES = ("live", "backfill", "backtest", "demo")

Name = Annotated[str, mapped_column(String(63))]
Word = Annotated[str, mapped_column(String(32))]
Id = Annotated[str, mapped_column(String(253))]
Micros = Annotated[int, mapped_column(BigInteger)]
Packed = Annotated[bytes, mapped_column(LargeBinary)]


def one_of(column: str, values: object) -> CheckConstraint:
    """A check that `column` holds one of an enum's values."""
    words = ", ".join(f"'{value}'" for value in values)  # type: ignore[attr-defined]
    return CheckConstraint(f"{column} IN ({words})", name=f"known_{column}")


class Base(DeclarativeBase):
    """Names of constraints are derived, so that a migration can find them on both databases."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class RunRow(Base):
    """Who wrote: one start of a controller, one backfill, one backtest, one demonstration."""

    __tablename__ = "runs"
    __table_args__ = (one_of("source", SOURCES),)

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    run_id: Mapped[Name] = mapped_column(primary_key=True)
    source: Mapped[Word]
    started_at: Mapped[Micros]
    code_version: Mapped[Word]


class PolicyVersionRow(Base):
    """Policies and profiles as they were in force, each content once."""

    __tablename__ = "policy_versions"

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    content_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    git_commit: Mapped[str] = mapped_column(String(80))
    codec: Mapped[int]
    content: Mapped[Packed]
    first_seen_at: Mapped[Micros]


class CycleRow(Base):
    """One cycle: all that `decide` was given, the plan's hash, and the state after it.

    `observation`, `state_before`, `state_after`, `forecast`: packed forms (see `codec.py`).
    """

    __tablename__ = "cycles"
    __table_args__ = (
        ForeignKeyConstraint(["cluster", "run_id"], ["runs.cluster", "runs.run_id"]),
        ForeignKeyConstraint(
            ["cluster", "policies_hash"], ["policy_versions.cluster", "policy_versions.content_hash"]
        ),
        one_of("kind", CycleKind),
        Index("ix_cycles_started", "cluster", "started_at"),
    )

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    kind: Mapped[Word] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    run_id: Mapped[Name]
    started_at: Mapped[Micros]
    duration_us: Mapped[Micros]
    code_version: Mapped[Word]
    lease_token: Mapped[int] = mapped_column(BigInteger)
    codec: Mapped[int]
    policies_hash: Mapped[str] = mapped_column(String(64))
    plan_hash: Mapped[str] = mapped_column(String(64))
    observation: Mapped[Packed]
    state_before: Mapped[Packed]
    state_after: Mapped[Packed]
    forecast: Mapped[Packed]


class ReasonCodeRow(Base):
    """Reason codes by number: lists filter by them, so they stand in a table of their own."""

    __tablename__ = "reason_codes"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    code: Mapped[str] = mapped_column(String(64), unique=True)


class DecisionRow(Base):
    """A cycle's answer for one pool. `decision`: its packed form, explanation included.

    `expected`, `grade`, `alternatives`: filled when decisions are graded.
    """

    __tablename__ = "decisions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["cluster", "kind", "seq"], ["cycles.cluster", "cycles.kind", "cycles.seq"], ondelete="CASCADE"
        ),
        one_of("kind", CycleKind),
        one_of("mode", Mode),
        one_of("outcome", Outcome),
        Index("ix_decisions_time", "cluster", "decided_at"),
        Index("ix_decisions_pool", "cluster", "pool", "decided_at"),
        Index("ix_decisions_reason", "cluster", "reason_id", "decided_at"),
    )

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    kind: Mapped[Word] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    pool: Mapped[Name] = mapped_column(primary_key=True)
    decided_at: Mapped[Micros]
    mode: Mapped[Word]
    outcome: Mapped[Word]
    reason_id: Mapped[int] = mapped_column(ForeignKey("reason_codes.id"))
    size_before: Mapped[float | None]
    size_after: Mapped[float | None]
    fingerprint: Mapped[str] = mapped_column(String(64))
    decision: Mapped[Packed]
    expected: Mapped[str | None] = mapped_column(Text)
    grade: Mapped[str | None] = mapped_column(String(32))
    alternatives: Mapped[str | None] = mapped_column(Text)
    approved_by: Mapped[str | None] = mapped_column(String(253))


class ActionRow(Base):
    """One level for one target, and what became of it."""

    __tablename__ = "actions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["cluster", "kind", "seq", "pool"],
            ["decisions.cluster", "decisions.kind", "decisions.seq", "decisions.pool"],
            ondelete="CASCADE",
        ),
        one_of("action", ActionKind),
        one_of("state", ActionState),
        Index("ix_actions_state", "cluster", "state"),
    )

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    kind: Mapped[Word] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    pool: Mapped[Name] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    action: Mapped[Word]
    gateway: Mapped[str] = mapped_column(String(253))
    instance: Mapped[str | None] = mapped_column(String(253))
    level: Mapped[int]
    seen: Mapped[int | None]
    reason_id: Mapped[int] = mapped_column(ForeignKey("reason_codes.id"))
    state: Mapped[Word]
    detail: Mapped[str] = mapped_column(Text)
    changed_at: Mapped[Micros]


class ActionEventRow(Base):
    """Every change of an action's state. Append-only: a trigger refuses update and delete."""

    __tablename__ = "action_events"
    __table_args__ = (Index("ix_action_events_action", "cluster", "kind", "seq", "pool", "ordinal"),)

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    cluster: Mapped[Name]
    kind: Mapped[Word]
    seq: Mapped[int] = mapped_column(BigInteger)
    pool: Mapped[Name]
    ordinal: Mapped[int]
    at: Mapped[Micros]
    state: Mapped[Word]
    detail: Mapped[str] = mapped_column(Text)


class LeaseRow(Base):
    """Who may act. `expires_at` by the database's clock; `token` grows with every new holder."""

    __tablename__ = "leases"

    cluster: Mapped[Name] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(String(253))
    token: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[Micros]


class HoldRow(Base):
    """A person's hold on a pool (None: the fleet), until it expires or is lifted."""

    __tablename__ = "holds"
    __table_args__ = (Index("ix_holds_open", "cluster", "lifted_at"),)

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    cluster: Mapped[Name]
    pool: Mapped[str | None] = mapped_column(String(63))
    author: Mapped[str] = mapped_column(String(253))
    reason: Mapped[str] = mapped_column(Text)
    since: Mapped[Micros]
    until: Mapped[int | None] = mapped_column(BigInteger)
    lifted_at: Mapped[int | None] = mapped_column(BigInteger)


class ActRow(Base):
    """What people did. Append-only: a trigger refuses update and delete."""

    __tablename__ = "acts"
    __table_args__ = (Index("ix_acts_at", "cluster", "at"),)

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    cluster: Mapped[Name]
    at: Mapped[Micros]
    author: Mapped[str] = mapped_column(String(253))
    act: Mapped[Word]
    subject: Mapped[Id]
    detail: Mapped[str] = mapped_column(Text)


APPEND_ONLY = (ActionEventRow.__tablename__, ActRow.__tablename__)
