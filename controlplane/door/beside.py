"""What no ended request tells: queue, in-flight and refusals now, read from the gateway's runtime API.

A stream is logged when it ends, so a flash crowd and a stuck stream show here first.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.adapters.gateways.haproxy.parse import QUESTIONS, Tables, tables
from controlplane.adapters.gateways.haproxy.runtime import Deadline, Runtime
from controlplane.door.lost import Key, Look, Losses
from controlplane.door.tally import Tally
from controlplane.ports import PortError, Unavailable

TIMEOUT_S = 1.0

PRECISELY = "show info float"
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")

Row = tuple[Sequence[str], float]


@dataclass(slots=True, eq=False)
class Beside(Collector):
    """The gateway as it was seen last. Whatever it no longer says has no series: unknown is not zero."""

    runtime: Runtime
    tally: Tally
    losses: Losses
    clock: Callable[[], float] = time.time
    seen: Tables | None = None
    lost: Mapping[str, int] = field(default_factory=dict)
    trouble: str = "not asked yet"

    def look(self) -> None:
        """Ask once: learn names, and compare what ended with what was read. Never raises."""
        waited, early, asked_s = self.tally.waiting(), self.tally.reads.so_far(), self.clock()
        try:
            *answers, precise = self.runtime.ask((*QUESTIONS, PRECISELY), Deadline(TIMEOUT_S))
            found, times = tables(*answers), process_times(precise)
        except (PortError, TimeoutError) as error:
            self.tally.name((), (), waited)
            self.seen, self.trouble = None, str(error)
            return
        look = Look(found.process.pid, *times, asked_s, self.clock(), _ended(found))
        self.tally.name(look.ended, found.servers, waited)
        self._compare(look, early)
        self.seen, self.trouble = found, ""

    def _compare(self, look: Look, early: Counter[Key]) -> None:
        late = self.tally.reads.take(look.pid, look.ended)
        late.subtract(early)
        self.losses.look(look, early, +late)
        self.lost = self.losses.by_pool()  # a scrape comes from another thread, and at any moment

    def collect(self) -> Iterator[Metric]:
        """All families; those of a silent gateway without rows."""
        seen = self.seen
        yield _gauge("gateway_up", "1 while the runtime API answers.", (), [((), float(seen is not None))])
        yield _counter("lost_lines", "Lines that never came.", ("pool",), _lost(self.lost))
        yield _gauge("queue", "Requests that wait.", ("pool",), _queue(seen))
        yield _gauge("in_flight", "Requests at an instance.", ("pool", "slot"), _in_flight(seen))
        yield _counter("refusals", "Refused by a limit, now: not when logged.", ("pool",), _refusals(seen))
        yield _counter("dropped_logs", "Lines that the gateway says it dropped.", (), _dropped(seen))


def _ended(found: Tables) -> dict[str, int]:
    return {each.pool: each.arrivals_total - each.current for each in found.backends}


def process_times(info: str) -> tuple[float, float]:
    """Start (epoch) and uptime of the process, seconds, to the microsecond. Raises Unavailable."""
    fields = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
    return _number(fields, "Start_time_sec"), _number(fields, "Uptime_sec")


def _number(fields: Mapping[str, str], key: str) -> float:
    text = fields.get(key, "")
    if not _DECIMAL.fullmatch(text):
        raise Unavailable(f"{PRECISELY}: {key} is {text!r}; a number of at least 0 was expected")
    return float(text)


def _lost(lost: Mapping[str, int]) -> list[Row]:
    return [((pool,), float(count)) for pool, count in lost.items()]


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
