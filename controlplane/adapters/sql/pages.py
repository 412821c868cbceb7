"""Pages on record: told again, by a repeat, a second Alertmanager or a retry, an alert is the same page.

What a page says does not depend on the order in which its notifications come: it begins with the
earliest and lasts to the latest, an end is final, and each is counted. So a "firing" that comes late
does not open a page again; an alert that fires anew has a new start, and is a new page.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine

from controlplane.adapters.sql.codec import MICROS, micros
from controlplane.adapters.sql.engine import WriteSession, writing
from controlplane.adapters.sql.pagelist import nearest
from controlplane.adapters.sql.tables import PageRow
from controlplane.ports import Notified, PageStatus


class SqlPages:
    """The pages port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def keep(self, notified: Sequence[Notified], at: float) -> Sequence[Notified]:
        """Commit all of it in one transaction. Answers what was news: pages that began, or that ended.

        Raises Unavailable, or Conflict where another writer began the same page just now.
        """
        seen_at = _stored(at)
        with writing(self._engine) as session:
            return [each for each in notified if _kept(session, each, seen_at)]


def _stored(at: float) -> float:
    """An instant as it will be read again: what is compared with a stored one must be as coarse."""
    return micros(at) / MICROS


def _kept(session: WriteSession, told: Notified, at: float) -> bool:
    """Whether it was news."""
    key = (told.cluster, told.fingerprint, _stored(told.starts_at))
    row = session.get(PageRow, key, with_for_update=True)
    before = None if row is None else row.status
    if row is None:
        row = _new(told, at)
        session.add(row)
    _merge(row, told, at)
    row.decision = nearest(session, row)
    session.flush()
    return before is not row.status


def _new(told: Notified, at: float) -> PageRow:
    return PageRow(
        cluster=told.cluster,
        fingerprint=told.fingerprint,
        starts_at=_stored(told.starts_at),
        alertname=told.alertname,
        severity=told.severity,
        pool=told.pool,
        labels=dict(told.labels),
        summary=told.summary,
        runbook=told.runbook,
        status=told.status,
        first_seen_at=at,
        last_seen_at=at,
        notifications=0,
    )


def _merge(row: PageRow, told: Notified, at: float) -> None:
    """Each line is one whose order does not matter: least, most, and a sum.

    The summary is that of the first notification: what was true when somebody was called.
    """
    row.first_seen_at, row.summary = min((row.first_seen_at, row.summary), (at, told.summary))
    row.last_seen_at = max(row.last_seen_at, at)
    row.notifications += 1
    if told.ends_at is not None:
        row.status = PageStatus.RESOLVED
        row.resolved_at = max(row.resolved_at or told.ends_at, told.ends_at)
