"""What a demonstration reads of the record while it runs and afterwards: stored cycles, read only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.adapters.sql.open import open_reader
from controlplane.adapters.sql.reader import Filter, Lent, Listed, Page, PageFilter, Reader
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import CycleId, CycleKind
from controlplane.domain.plan import AT_GATEWAY, Outcome, Plan
from controlplane.domain.readings import Missing
from controlplane.ports import Frame, PortError

MOST = 100_000
"""Rows of a demonstration: more than any has."""


@dataclass(frozen=True, slots=True)
class Told:
    """One stored cycle, as far as a report needs it. `started_at` epoch seconds."""

    cycle: CycleId
    started_at: float
    plan: Plan
    inventory: Inventory | Missing


class RecordFile:
    """The database of one demonstration. Until the controller has made it, it is empty."""

    def __init__(self, path: Path) -> None:
        self._url = f"sqlite:///{path}"
        self._open: Reader | None = None

    def cycles(self) -> Iterator[Told]:
        """All cycles in the order in which they ran."""
        reader = self._reader()
        for stored in reader.cycles() if reader else ():
            assert reader is not None  # noqa: S101 - else there is nothing to iterate
            plan = reader.plan(stored.cycle, stored)
            yield Told(stored.cycle, stored.at, plan, stored.frame.observation.inventory)

    def newest(self, kind: CycleKind) -> Frame | None:
        """What the newest cycle of a kind was given; None before there is one."""
        reader = self._reader()
        latest = reader.decisions(Filter(kind=kind), 1) if reader else ()
        stored = reader.cycle(latest[0].id.cycle) if reader and latest else None
        return stored.frame if stored else None

    def changes(self, limit: int) -> Sequence[Listed]:
        """The newest decisions that changed something, newest first."""
        reader = self._reader()
        return reader.decisions(Filter(outcome=Outcome.CHANGE), limit) if reader else ()

    def pushed(self) -> int:
        """How many levels gateways took."""
        reader = self._reader()
        return sum(reader.applied().get(kind, 0) for kind in AT_GATEWAY) if reader else 0

    def loans(self) -> Sequence[Lent]:
        """All loans, the newest first."""
        reader = self._reader()
        return reader.loans(MOST) if reader else ()

    def pages(self) -> Sequence[Page]:
        """All pages, the newest first."""
        reader = self._reader()
        return reader.pages(PageFilter(), MOST) if reader else ()

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _reader(self) -> Reader | None:
        if self._open is None:
            try:
                self._open = open_reader(self._url)
            except PortError:  # not there yet, or half migrated
                return None
        return self._open
