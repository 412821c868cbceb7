"""The metrics source: Prometheus' vectors as readings. It never raises for a bad answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from controlplane.adapters.engines.template import SCRAPES_IN_WINDOW, Rendering
from controlplane.adapters.prometheus.asks import Ask, Mode, asks
from controlplane.adapters.prometheus.brought import Brought
from controlplane.adapters.prometheus.client import Answer, Result
from controlplane.adapters.prometheus.health import health
from controlplane.adapters.prometheus.reader import Reader
from controlplane.adapters.prometheus.table import Identify, Table, own_label, sort
from controlplane.domain.ids import CycleKind
from controlplane.domain.policy import EvidencePolicy, Policies
from controlplane.domain.readings import Cause
from controlplane.ports import MetricsAnswer


class Asker(Protocol):
    """Whoever carries queries to a server: `PrometheusClient`."""

    def ask(self, queries: Mapping[str, str]) -> Mapping[str, Result]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """Implements `MetricsSource` over recorded series, or over raw ones (mode INLINE).

    `interval_s`: how often Prometheus scrapes. `identify`: whom a series is about.
    """

    client: Asker
    cluster: str
    interval_s: float
    mode: Mode = Mode.RECORDED
    identify: Identify = own_label

    def read(self, kind: CycleKind, policies: Policies, now: float) -> MetricsAnswer:
        """One cycle's readings. Queries that fail lose their own signals, with the cause."""
        rendering = self._rendering(policies)
        wanted = asks(kind)
        results = self.client.ask({ask.name: ask.promql(self.mode, rendering) for ask in wanted})
        brought = tuple(self._brought(ask, results[ask.name]) for ask in wanted)
        reader = Reader(brought, policies, now, self.interval_s)
        instances, pools = reader.instances(), reader.pools()  # first: `health` counts what they reject
        return MetricsAnswer(instances, pools, health(results, reader), reader.absent())

    def _rendering(self, policies: Policies) -> Rendering:
        """The longest window that a pool asks for, at least four scrapes: below that, `Reader` says so."""
        windows = [pool.evidence.window_s for pool in policies.pools.values()] or [EvidencePolicy().window_s]
        least = self.interval_s * SCRAPES_IN_WINDOW
        return Rendering(max(*windows, least), self.interval_s, self.cluster)

    def _brought(self, ask: Ask, result: Result) -> Brought:
        if not isinstance(result, Answer):
            return Brought(ask, Table(), failed=result.cause)
        table = sort(result.vector.samples, ask.templates, self.identify)
        empty = not table.pool_of and not table.pools_seen()
        return Brought(
            ask,
            table,
            failed=Cause.EMPTY if empty else None,
            partial=bool(result.vector.warnings),
            lag_s=result.lag_s,
        )
