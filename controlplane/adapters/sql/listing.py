"""Lists of decisions: filtered by index, a page at a time, never counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select

from controlplane.adapters.sql.codec import Damaged, unpack
from controlplane.adapters.sql.engine import ReadSession
from controlplane.adapters.sql.tables import DecisionRow, ReasonCodeRow, RunRow, StreakRow
from controlplane.domain.ids import CycleId, CycleKind, DecisionId, PoolName, Source
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.policy import Mode


@dataclass(frozen=True, slots=True)
class Filter:
    """Which decisions: None means any. `since` (inclusive) and `until` in epoch seconds."""

    pool: str | None = None
    kind: CycleKind | None = None
    outcome: Outcome | None = None
    code: str | None = None
    since: float | None = None
    until: float | None = None
    cluster: str | None = None
    source: Source | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """One decision of a list. `repeats`: how many in a row said the same, this one the newest and
    the oldest of them at `first_at`. Instants in epoch seconds."""

    id: DecisionId
    at: float
    mode: Mode
    outcome: Outcome
    code: str
    decision: Decision
    repeats: int = 1
    first_at: float = 0.0


def decisions(
    session: ReadSession, chosen: Filter, limit: int, before: DecisionId | None
) -> Sequence[Listed]:
    """Every decision, newest first."""
    at = DecisionRow.decided_at
    query = _filtered(session, _joined(), DecisionRow, at, chosen)
    order = (at, DecisionRow.kind, DecisionRow.seq, DecisionRow.pool)
    return _page(session, _after(session, query, order, before), order, chosen.until, limit)


def streaks(session: ReadSession, chosen: Filter, limit: int, before: DecisionId | None) -> Sequence[Listed]:
    """Decisions with "the same again" folded, by when each streak began, newest first. A streak that
    is still going on at `since` counts as being after it."""
    at = StreakRow.first_at
    joined = _joined().add_columns(StreakRow.count, at).join(StreakRow, _last_of_streak())
    query = _filtered(session, joined, StreakRow, StreakRow.last_at, chosen)
    order = (at, StreakRow.kind, StreakRow.first_seq, StreakRow.pool)
    return _page(session, _after(session, query, order, before), order, chosen.until, limit)


def one(session: ReadSession, id_: DecisionId) -> Listed | None:
    """One decision; None where there is none of that id."""
    found = session.execute(_joined().where(DecisionRow.pool == id_.pool, of_cycle(id_.cycle))).first()
    return None if found is None else listed(*found)


def of(session: ReadSession, id_: CycleId) -> Sequence[Listed]:
    """A cycle's decisions, by pool."""
    found = [listed(*row) for row in session.execute(_joined().where(of_cycle(id_)))]
    return sorted(found, key=lambda each: each.id.pool)


def of_cycle(id_: CycleId) -> ColumnElement[bool]:
    """Decisions of one cycle."""
    return and_(DecisionRow.cluster == id_.cluster, DecisionRow.kind == id_.kind, DecisionRow.seq == id_.seq)


def listed(row: DecisionRow, code: str, repeats: int = 1, first_at: float | None = None) -> Listed:
    """A row as it is shown. Raises Damaged."""
    id_ = DecisionId(CycleId(row.cluster, row.kind, row.seq), PoolName(row.pool))
    decision = unpack(Decision, row.body, row.codec, f"decision {id_}")
    began = row.decided_at if first_at is None else first_at
    return Listed(id_, row.decided_at, row.mode, row.outcome, code, decision, repeats, began)


def _joined() -> Select[*tuple[Any, ...]]:
    return select(DecisionRow, ReasonCodeRow.code).join(
        ReasonCodeRow, DecisionRow.code_id == ReasonCodeRow.code_id
    )


def _last_of_streak() -> ColumnElement[bool]:
    return and_(
        DecisionRow.cluster == StreakRow.cluster,
        DecisionRow.kind == StreakRow.kind,
        DecisionRow.pool == StreakRow.pool,
        DecisionRow.seq == StreakRow.last_seq,
    )


def _of_streak() -> ColumnElement[bool]:
    return and_(
        DecisionRow.cluster == StreakRow.cluster,
        DecisionRow.kind == StreakRow.kind,
        DecisionRow.pool == StreakRow.pool,
        DecisionRow.streak_seq == StreakRow.first_seq,
    )


def _filtered(
    session: ReadSession,
    query: Select[*tuple[Any, ...]],
    table: type[DecisionRow | StreakRow],
    at: Any,
    chosen: Filter,
) -> Select[*tuple[Any, ...]]:
    clusters = [chosen.cluster] if chosen.cluster else _clusters(session)
    wanted: tuple[tuple[object, ColumnElement[bool]], ...] = (
        (chosen.pool, table.pool == chosen.pool),
        (chosen.kind, table.kind == chosen.kind),
        (chosen.outcome, table.outcome == chosen.outcome),
        (chosen.code, table.code_id == _code_id(chosen.code)),
        (chosen.source, table.source == chosen.source),
        (chosen.run_id, table.run_id == chosen.run_id),
        (chosen.since, at >= (chosen.since or 0.0)),
    )
    return query.where(
        table.cluster.in_(clusters), *[condition for value, condition in wanted if value is not None]
    )


def _code_id(code: str | None) -> Any:
    return select(ReasonCodeRow.code_id).where(ReasonCodeRow.code == code).scalar_subquery()


def _clusters(session: ReadSession) -> Sequence[str]:
    """Few, and named so that indexes, which begin with the cluster, are of use."""
    return session.scalars(select(RunRow.cluster).distinct()).all()


Order = tuple[Any, Any, Any, Any]
"""The columns by which a list is ordered: instant and number falling, kind and pool rising."""

Query = Select[*tuple[Any, ...]]


def _page(
    session: ReadSession, query: Query, order: Order, until: float | None, limit: int
) -> Sequence[Listed]:
    at, kind, seq, pool = order
    bounded = query if until is None else query.where(at < until)
    ordered = bounded.order_by(at.desc(), kind, seq.desc(), pool)
    return [listed(*row) for row in session.execute(ordered.limit(limit))]


def _after(session: ReadSession, query: Query, order: Order, last: DecisionId | None) -> Query:
    """What stands behind the last row of the page before. Raises Damaged where that is gone."""
    return query if last is None else query.where(_behind(order, _place(session, order, last)))


def _place(session: ReadSession, order: Order, id_: DecisionId) -> tuple[Any, ...]:
    """Where a decision, or the streak it belongs to, stands in the order. Raises Damaged."""
    query = select(*order).select_from(DecisionRow).join(StreakRow, _of_streak())
    found = session.execute(query.where(DecisionRow.pool == id_.pool, of_cycle(id_.cycle))).first()
    if found is None:
        raise Damaged(f"{id_}: not on record, so that no page can follow it")
    return tuple(found)


def _behind(order: Order, place: tuple[Any, ...]) -> ColumnElement[bool]:
    at, kind, seq, pool = order
    stamp, its_kind, its_seq, its_pool = place
    return or_(
        at < stamp,
        and_(at == stamp, kind > its_kind),
        and_(at == stamp, kind == its_kind, seq < its_seq),
        and_(at == stamp, kind == its_kind, seq == its_seq, pool > its_pool),
    )
