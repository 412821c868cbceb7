"""`/metrics`: what the controller says of itself, computed at each scrape from the last cycles.

Gauges are built anew from the last report, so a series of an instance that is gone is gone within
one cycle, and what is unknown has no series instead of a reassuring number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane import __version__
from controlplane.domain.explanation import Input
from controlplane.domain.fleet import Inventory
from controlplane.domain.gateway import GatewayView, ServerState
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.imbalance import UNDEFINED
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.policy import Policies
from controlplane.domain.rules import latency
from controlplane.loop.cycle import Report
from controlplane.loop.runner import Health
from controlplane.ports import Notified
from controlplane.telemetry import capacity, catalog
from controlplane.telemetry.catalog import Family, Kind

Row = tuple[Sequence[str], float]


@dataclass(slots=True)
class Told:
    """What the exporter remembers: the last report of each kind, running totals by labels, the
    policies in force (None: not yet read), and the sizes that are ordered by being shown here.

    `last` is in the order of telling, newest at the end, and replaced as a whole: another thread reads it.
    """

    cluster: str
    last: dict[CycleKind, Report] = field(default_factory=dict)
    totals: dict[str, Counter[tuple[str, ...]]] = field(default_factory=dict)
    policies_valid: bool = True
    policies: Policies | None = None
    desired: dict[PoolName, int] = field(default_factory=dict)

    def tell(self, report: Report) -> None:
        """Take one cycle into account."""
        others = {kind: each for kind, each in self.last.items() if kind is not report.kind}
        self.last = {**others, report.kind: report}
        result = "failed" if report.failure else "done"
        self._count(catalog.CYCLES, report.kind, result)
        if report.plan is not None and report.observation is not None:
            self._decisions(report)

    def broken(self, kind: CycleKind) -> None:
        """A cycle raised: a defect, and counted as one."""
        self._count(catalog.CYCLES, kind, "broken")

    def paged(self, page: Notified) -> None:
        """A page began, or ended."""
        self._count(catalog.PAGES, page.alertname, page.severity, page.status)

    def _decisions(self, report: Report) -> None:
        assert report.plan is not None and report.observation is not None  # noqa: S101, PT018
        for pool, decision in report.plan.decisions.items():
            self._count(catalog.DECISIONS, report.kind, pool, decision.outcome)
        for id_, (state, _reason) in report.outcomes.items():
            decision = report.plan.decisions[id_.decision.pool]
            self._count(catalog.ACTIONS, id_.decision.pool, decision.actions[id_.ordinal].kind, state)
        health = report.observation.source
        for name, _detail in health.failures:
            self._count(catalog.QUERY_FAILURES, report.kind, name)
        self._count(catalog.REJECTED, report.kind, by=health.rejected_samples)

    def _count(self, family: Family, *labels: str, by: int = 1) -> None:
        self.totals.setdefault(family.name, Counter())[(self.cluster, *map(str, labels))] += by


class Exporter(Collector):
    """Yields every family of the catalogue."""

    def __init__(self, told: Told, health: Health) -> None:
        self._told = told
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """All families, those without a row as well: a dashboard should find their help."""
        rows = {**self._beats(), **self._last()}
        for family in catalog.FAMILIES:
            # A copy, made in one step: the loop's thread counts while this one reads.
            totals = dict(self._told.totals.get(family.name, {}))
            yield _family(family, rows.get(family.name, []), totals)

    def _beats(self) -> dict[str, list[Row]]:
        cluster, beats = self._told.cluster, self._health.beats
        return {
            catalog.BUILD_INFO.name: [((cluster, __version__), 1.0)],
            catalog.CYCLE_INTERVAL.name: [((cluster, kind), beat.interval_s) for kind, beat in beats.items()],
            catalog.CYCLE_AGE.name: [((cluster, kind), self._health.age_s(kind)) for kind in beats],
            catalog.POLICY_VALID.name: [((cluster,), float(self._told.policies_valid))],
            catalog.TARGET.name: list(_targets(self._told.policies, cluster)),
            catalog.DESIRED.name: [
                ((cluster, pool), float(count)) for pool, count in sorted(self._told.desired.items())
            ],
        }

    def _last(self) -> dict[str, list[Row]]:
        cluster, reports = self._told.cluster, list(self._told.last.values())
        observed = [each for each in reports if each.observation is not None]
        rows: dict[str, list[Row]] = {
            catalog.CYCLE_DURATION.name: [((cluster, each.kind), each.duration_s) for each in reports],
            catalog.QUERIES.name: [
                ((cluster, each.kind), float(each.observation.source.queries))
                for each in observed
                if each.observation
            ],
        }
        slow, newest = self._told.last.get(CycleKind.CAPACITY), observed[-1] if observed else None
        rows |= _imbalance(slow, cluster) | capacity.rows(newest, slow, cluster)
        return rows | _world(newest, cluster) | _pools(observed, cluster)


def _world(report: Report | None, cluster: str) -> dict[str, list[Row]]:
    """Gateways and inventory as the newest observation has them."""
    if report is None or report.observation is None:
        return {}
    seen = report.observation
    views = [view for view in seen.gateways.values() if isinstance(view, GatewayView)]
    servers = [
        ((cluster, backend.pool, view.gateway, row.instance_id), row)
        for view in views
        for backend in view.backends
        for row in backend.servers
        if row.state is not ServerState.ABSENT
    ]
    skew = seen.source.skew_s
    return {
        catalog.WEIGHT.name: [(labels, float(row.weight)) for labels, row in servers],
        catalog.LIMIT.name: [(labels, float(row.limit)) for labels, row in servers],
        catalog.GATEWAY_UP.name: [
            ((cluster, name), float(isinstance(view, GatewayView))) for name, view in seen.gateways.items()
        ],
        catalog.INVENTORY_UP.name: [((cluster,), float(isinstance(seen.inventory, Inventory)))],
        catalog.SKEW.name: [] if skew is None else [((cluster,), skew)],
    }


def _pools(reports: Iterable[Report], cluster: str) -> dict[str, list[Row]]:
    """By pool that has a decision: who is held, how blind it is, and what only the gateway counts.

    Reports come oldest first: both kinds share one memory, and the newest one's counts.
    """
    held: dict[str, float] = {}
    unconfirmed: list[Row] = []
    blind: dict[str, float] = {}
    for report in reports:
        if report.plan is None:
            continue
        for pool, decision in report.plan.decisions.items():
            held[pool] = max(held.get(pool, 0.0), float(decision.outcome is Outcome.HELD))
            unconfirmed += [((cluster, pool), gap) for gap in _unconfirmed(decision)]
            blind |= {pool: float(report.memory[pool].blind)} if pool in report.memory else {}
    return {
        catalog.HELD.name: [((cluster, pool), value) for pool, value in held.items()],
        catalog.UNCONFIRMED.name: unconfirmed,
        catalog.BLIND.name: [((cluster, pool), value) for pool, value in blind.items()],
    }


def _targets(policies: Policies | None, cluster: str) -> Iterator[Row]:
    for pool, policy in ({} if policies is None else policies.pools).items():
        for signal, target in latency.targets(policy.slo).items():
            yield (cluster, pool, policy.kind, signal), target


def _imbalance(report: Report | None, cluster: str) -> dict[str, list[Row]]:
    """Of capacity cycles alone: theirs are the means over the window, by which the alerts are defined."""
    decisions = report.plan.decisions if report is not None and report.plan is not None else {}
    told = [
        (pool, each)
        for pool, decision in decisions.items()
        for step in decision.explanation.steps
        if step.rule == "imbalance"
        for each in step.inputs
    ]
    return {
        catalog.IMBALANCE.name: _rows_of("imbalance_", told, cluster),
        catalog.HOTTEST.name: _rows_of("hottest_", told, cluster),
    }


def _rows_of(prefix: str, told: Iterable[tuple[str, Input]], cluster: str) -> list[Row]:
    """NaN where a figure is known to be undefined; nothing where it is not known."""
    return [
        (
            (cluster, pool, each.name.removeprefix(prefix), each.subject),
            math.nan if each.value is None else each.value,
        )
        for pool, each in told
        if each.name.startswith(prefix) and (each.value is not None or each.cause in UNDEFINED)
    ]


def _unconfirmed(decision: Decision) -> Iterator[float]:
    for step in decision.explanation.steps:
        if step.rule == "in_flight":
            figures = {each.name: each for each in step.inputs}
            gateway, engines = figures.get("gateway_in_flight"), figures.get("confirmed")
            if _known(gateway) and _known(engines):
                yield max(0.0, gateway.value - engines.value)  # type: ignore[union-attr, operator]


def _known(figure: Input | None) -> bool:
    return figure is not None and figure.value is not None


def _family(family: Family, rows: Sequence[Row], totals: dict[tuple[str, ...], int]) -> Metric:
    made: GaugeMetricFamily | CounterMetricFamily
    if family.kind is Kind.COUNTER:
        made = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
        rows = [(labels, float(count)) for labels, count in totals.items()]
    else:
        made = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in rows:
        made.add_metric(list(labels), value)
    return made
