"""Pages as they are read: lists a page at a time, and the decisions around one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy import ColumnElement, and_, or_, select

from controlplane.adapters.sql import listing
from controlplane.adapters.sql.codec import MICROS, micros
from controlplane.adapters.sql.engine import ReadSession, WriteSession
from controlplane.adapters.sql.listing import Filter, Listed
from controlplane.adapters.sql.scope import CONTINUED
from controlplane.adapters.sql.tables import DecisionRow, PageRow, StreakRow
from controlplane.domain.ids import NAME, CycleId, CycleKind, DecisionId, PoolName
from controlplane.domain.plan import Outcome
from controlplane.ports import PageStatus

AROUND_S = 300.0
"""Decisions from so long before a page began until so long after it ended are "around" it."""

EARLIER_S = 60.0
"""A decision may come before the page that tells of its reason: alerts hold for a while before they fire."""

MOST_AROUND = 200
"""Decisions shown around one page, of each kind of outcome: the newest."""

_ID = re.compile(rf"(?P<cluster>{NAME.pattern}):(?P<fingerprint>[0-9a-f]{{1,64}}):(?P<start>[0-9]{{1,16}})")


@dataclass(frozen=True, slots=True, order=True)
class PageId:
    """`<cluster>:<fingerprint of the labels>:<start in epoch microseconds>`."""

    cluster: str
    fingerprint: str
    starts_at: float

    def __str__(self) -> str:
        return f"{self.cluster}:{self.fingerprint}:{micros(self.starts_at)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `demo:1f0c2d3e4a5b6c7d:1796422200000000`. Raises ValueError on anything else."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no page; one looks like demo:1f0c2d3e4a5b6c7d:1796422200000000")
        return cls(found["cluster"], found["fingerprint"], int(found["start"]) / MICROS)


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Which pages: None means any. `since` (inclusive): when they began, epoch seconds."""

    cluster: str | None = None
    pool: str | None = None
    status: PageStatus | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page. Instants in epoch seconds; `decision`: the one that stands nearest, None where none does."""

    id: PageId
    alertname: str
    severity: str
    pool: str
    labels: Mapping[str, str]
    summary: str
    runbook: str
    status: PageStatus
    first_seen_at: float
    last_seen_at: float
    resolved_at: float | None
    notifications: int
    decision: DecisionId | None


def pages(session: ReadSession, chosen: PageFilter, limit: int, before: PageId | None) -> Sequence[Page]:
    """Newest first. `before`: the last one of the page before, which need not be there any more."""
    query = select(PageRow).where(*_chosen(chosen))
    if before is not None:
        query = query.where(_behind(before))
    ordered = query.order_by(PageRow.starts_at.desc(), PageRow.cluster, PageRow.fingerprint).limit(limit)
    return [_page(session, row) for row in session.scalars(ordered)]


def one(session: ReadSession, id_: PageId) -> Page | None:
    """One page; None where there is none of that id."""
    row = session.get(PageRow, (id_.cluster, id_.fingerprint, id_.starts_at))
    return None if row is None else _page(session, row)


def around(session: ReadSession, page: Page) -> Sequence[Listed]:
    """What changed something or was held around the page, oldest first, repeats folded."""
    if not page.pool:
        return []
    until = None if page.resolved_at is None else page.resolved_at + AROUND_S
    since = page.id.starts_at - AROUND_S
    found = [
        each
        for outcome in (Outcome.CHANGE, Outcome.HELD)
        for source in CONTINUED
        for each in listing.streaks(
            session,
            Filter(
                page.pool, outcome=outcome, since=since, until=until, cluster=page.id.cluster, source=source
            ),
            MOST_AROUND,
            None,
        )
    ]
    return sorted(found, key=lambda each: (each.first_at, each.id))


def nearest(session: ReadSession | WriteSession, row: PageRow) -> str | None:
    """The id of the decision that stands nearest: the first capacity decision that changes something,
    from a minute before the page began until it ended; else the last decision before it began."""
    return (_answering(session, row) or _preceding(session, row)) if row.pool else None


def _answering(session: ReadSession | WriteSession, row: PageRow) -> str | None:
    """Read from the streaks, which are few, and whose first decision has the streak's own number."""
    query = select(StreakRow.first_seq).where(
        StreakRow.cluster == row.cluster,
        StreakRow.pool == row.pool,
        StreakRow.kind == CycleKind.CAPACITY,
        StreakRow.outcome == Outcome.CHANGE,
        StreakRow.source.in_(CONTINUED),
        StreakRow.first_at >= row.starts_at - EARLIER_S,
    )
    if row.resolved_at is not None:
        query = query.where(StreakRow.first_at <= row.resolved_at)
    seq = session.scalar(query.order_by(StreakRow.first_at, StreakRow.first_seq).limit(1))
    return None if seq is None else _id(row, CycleKind.CAPACITY, seq)


def _preceding(session: ReadSession | WriteSession, row: PageRow) -> str | None:
    query = select(DecisionRow.kind, DecisionRow.seq).where(
        DecisionRow.cluster == row.cluster,
        DecisionRow.pool == row.pool,
        DecisionRow.source.in_(CONTINUED),
        DecisionRow.decided_at <= row.starts_at,
    )
    order = (DecisionRow.decided_at.desc(), DecisionRow.kind, DecisionRow.seq.desc())
    found = session.execute(query.order_by(*order).limit(1)).first()
    return None if found is None else _id(row, *found)


def _id(row: PageRow, kind: CycleKind, seq: int) -> str:
    return str(DecisionId(CycleId(row.cluster, kind, seq), PoolName(row.pool)))


def _page(session: ReadSession, row: PageRow) -> Page:
    """While it fires, the nearest decision may have come after the last notification."""
    firing = row.status is PageStatus.FIRING
    decision = (nearest(session, row) if firing else None) or row.decision
    return Page(
        PageId(row.cluster, row.fingerprint, row.starts_at),
        row.alertname,
        row.severity,
        row.pool,
        row.labels,
        row.summary,
        row.runbook,
        row.status,
        row.first_seen_at,
        row.last_seen_at,
        row.resolved_at,
        row.notifications,
        DecisionId.parse(decision) if decision else None,
    )


def _chosen(chosen: PageFilter) -> list[ColumnElement[bool]]:
    wanted: tuple[tuple[object, ColumnElement[bool]], ...] = (
        (chosen.cluster, PageRow.cluster == chosen.cluster),
        (chosen.pool, PageRow.pool == chosen.pool),
        (chosen.status, PageRow.status == chosen.status),
        (chosen.since, PageRow.starts_at >= (chosen.since or 0.0)),
    )
    return [condition for value, condition in wanted if value is not None]


def _behind(last: PageId) -> ColumnElement[bool]:
    at, cluster, fingerprint = PageRow.starts_at, PageRow.cluster, PageRow.fingerprint
    return or_(
        at < last.starts_at,
        and_(at == last.starts_at, cluster > last.cluster),
        and_(at == last.starts_at, cluster == last.cluster, fingerprint > last.fingerprint),
    )
