"""What no ended request tells: queue, in-flight and refusals now, read from the gateway's runtime API.

A stream is logged when it ends, so a flash crowd and a stuck stream show here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.adapters.gateways.haproxy.parse import QUESTIONS, Tables, tables
from controlplane.adapters.gateways.haproxy.runtime import Deadline, Runtime
from controlplane.door.lost import Look, Losses
from controlplane.ports import PortError

TIMEOUT_S = 1.0

Row = tuple[Sequence[str], float]


@dataclass(slots=True, eq=False)
class Beside(Collector):
    """The gateway as it was seen last. Whatever it no longer says has no series: unknown is not zero."""

    runtime: Runtime
    read: Callable[[], Mapping[tuple[int, str], int]]
    losses: Losses = field(default_factory=Losses)
    seen: Tables | None = None
    trouble: str = "not asked yet"

    def look(self) -> None:
        """Ask once, and compare what ended with what was read. Never raises."""
        try:
            found = tables(*self.runtime.ask(QUESTIONS, Deadline(TIMEOUT_S)))
        except (PortError, TimeoutError) as error:
            self.seen, self.trouble = None, str(error)
            return
        self.losses.look(_ended(found), self.read())
        self.seen, self.trouble = found, ""

    def collect(self) -> Iterator[Metric]:
        """All families; those of a silent gateway without rows."""
        seen = self.seen
        yield _gauge("gateway_up", "1 while the runtime API answers.", (), [((), float(seen is not None))])
        yield _counter("lost_lines", "Lines that never came.", ("pool",), _lost(self.losses))
        yield _gauge("queue", "Requests that wait.", ("pool",), _queue(seen))
        yield _gauge("in_flight", "Requests at an instance.", ("pool", "slot"), _in_flight(seen))
        yield _counter("refusals", "Refused by a limit, now: not when logged.", ("pool",), _refusals(seen))
        yield _counter("dropped_logs", "Lines that the gateway says it dropped.", (), _dropped(seen))


def _ended(found: Tables) -> Look:
    return Look(found.process.pid, {each.pool: each.arrivals_total - each.current for each in found.backends})


def _lost(losses: Losses) -> list[Row]:
    return [((pool,), float(count)) for pool, count in losses.by_pool().items()]


def _queue(seen: Tables | None) -> list[Row]:
    return [] if seen is None else [((each.pool,), float(each.queue)) for each in seen.backends]


def _in_flight(seen: Tables | None) -> list[Row]:
    servers = () if seen is None else seen.servers.values()
    return [((each.pool, each.name), float(each.in_flight)) for each in servers]


def _refusals(seen: Tables | None) -> list[Row]:
    backends = () if seen is None else seen.backends
    return [((each.pool,), float(each.denied_total + each.unserved_total)) for each in backends]


def _dropped(seen: Tables | None) -> list[Row]:
    return [] if seen is None else [((), float(seen.process.dropped_logs))]


def _gauge(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    return _filled(GaugeMetricFamily(f"trimtab_door_{name}", text, labels=labels), rows)


def _counter(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    return _filled(CounterMetricFamily(f"trimtab_door_{name}", text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Sequence[Row]) -> Metric:
    for labels, value in rows:
        family.add_metric(list(labels), value)
    return family
