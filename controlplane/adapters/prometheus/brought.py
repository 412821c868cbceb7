"""What one query of a cycle brought, or why it brought nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controlplane.adapters.engines.template import Helper, Level, Template, by_series, series_name
from controlplane.adapters.prometheus.asks import Ask
from controlplane.adapters.prometheus.table import Table
from controlplane.domain.readings import Cause, PoolSignal, Signal


@dataclass(frozen=True, slots=True)
class Brought:
    """One query's yield. `failed`: why it brought nothing; `partial`: the source says so itself.
    `lag_s`: how long before it was sent the answer was computed (a cache in between)."""

    ask: Ask
    table: Table
    failed: Cause | None = None
    partial: bool = False
    lag_s: float = 0.0

    @property
    def absent(self) -> Cause:
        """What it means that a sample is not in here."""
        if self.failed is not None:
            return self.failed
        return Cause.PARTIAL if self.partial else Cause.NOT_EXPORTED

    def signals(self) -> Iterator[tuple[Signal, Template]]:
        """The instance signals asked for, with one template each."""
        for template in self._first_of_each():
            if isinstance(template.name, Signal):
                yield template.name, template

    def pool_signals(self) -> Iterator[tuple[PoolSignal, Template]]:
        """The pool signals asked for, with one template each."""
        for template in self._first_of_each():
            if isinstance(template.name, PoolSignal):
                yield template.name, template

    def helper(self, helper: Helper, level: Level, subject: str) -> float | None:
        """A helper's value about a subject, None where it has none; of several the largest."""
        return max(self.table.said(series_name(helper, level), subject), default=None)

    def _first_of_each(self) -> Iterator[Template]:
        return (spoken[0] for spoken in by_series(self.ask.templates).values())
