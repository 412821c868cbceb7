"""Whose memory a run shares.

Live runs of a cluster go on where the last one stopped, and so do demonstrations in one database.
Every backfill and every backtest is a world of its own, of which no other run may know.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_

from controlplane.adapters.sql.tables import ActionRow, CycleRow, LoanRow, StreakRow
from controlplane.domain.ids import Source

CONTINUED = frozenset({Source.LIVE, Source.DEMO})


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a controller, or one pass over the past. `lease_token` 0: nobody asked for one."""

    cluster: str
    run_id: str
    source: Source
    lease_token: int = 0

    @property
    def scope(self) -> str:
        """The name under which its memory is kept."""
        return str(self.source) if self.source in CONTINUED else self.run_id

    def shares(self, row: type[ActionRow | CycleRow | LoanRow | StreakRow]) -> ColumnElement[bool]:
        """Rows of the same cluster and the same memory."""
        of_source = and_(row.cluster == self.cluster, row.source == self.source)
        return of_source if self.source in CONTINUED else and_(of_source, row.run_id == self.run_id)
