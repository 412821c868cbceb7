"""Lines into histograms and counts, as Prometheus series.

Whoever reaches the log's socket can send lines, and a series is for ever, so their number is bounded:
beyond it a line is counted and nothing else of it is kept.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as Total

from controlplane.adapters.engines.door import EDGES_S
from controlplane.door.line import Line, Malformed, Outcome, parse

PROMISED_S = 1.0
"""What counts as long to wait where no policy promises anything, seconds."""

SERIES_MAX = 20_000
"""Label sets at most: a thousand instances by a dozen outcomes, and room."""

_BY = ("pool", "slot", "class", "status")
_PROCESSES = 8


class Tally:
    """What was read so far. `take` may be called while another thread collects.

    `targets_s`, seconds, are histogram edges too, so that the share of requests within one is exact.
    """

    def __init__(self, targets_s: Collection[float] = (), series_max: int = SERIES_MAX) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.edges = tuple(sorted({*EDGES_S, *targets_s}))
        self._promised_s = min(targets_s, default=PROMISED_S)
        self._series_max = series_max
        self._wait = self._histogram("wait", "Seconds in the gateway's queue, of requests that left it.")
        self._ttft = self._histogram(
            "ttft", "Seconds to the first token as the caller saw it, queue included."
        )
        self._total = self._histogram("total", "Seconds to the last byte as the caller saw it.")
        self._requests = self._counter(
            "requests", "Ended requests. A cut stream has status 200 and outcome cut.", (*_BY, "outcome")
        )
        self._lines = self._counter("lines", "Lines that were understood.")
        self._malformed = self._counter("malformed_lines", "Lines that were not.")
        self._crowded = self._counter("crowded_lines", "Lines not counted further: too many label sets.")
        self._known: set[tuple[str, ...]] = set()
        self._read: Counter[tuple[int, str]] = Counter()
        self._pids: dict[int, None] = {}
        self._lock = threading.Lock()

    def take(self, raw: bytes) -> Line | None:
        """Count one line; answers it, None where it is none of ours. Never raises."""
        try:
            line = parse(raw)
        except Malformed:
            self._malformed.inc()
            return None
        self._lines.inc()
        if self._admit(line):
            self._count(line)
        else:
            self._crowded.inc()
        return line

    def read(self) -> Mapping[tuple[int, str], int]:
        """Lines so far by the gateway's pid and pool."""
        with self._lock:
            return dict(self._read)

    def _admit(self, line: Line) -> bool:
        key = (*_labels(line), line.outcome.value)
        with self._lock:
            fits = key in self._known or len(self._known) < self._series_max
            if fits:
                self._known.add(key)
            if fits or (line.pid, line.pool) in self._read:
                self._read[line.pid, line.pool] += 1
                self._forget_old_processes(line.pid)
            return fits

    def _forget_old_processes(self, newest: int) -> None:
        if newest in self._pids:
            return
        self._pids[newest] = None
        if len(self._pids) > _PROCESSES:
            oldest = next(iter(self._pids))
            del self._pids[oldest]
            self._read = Counter({key: count for key, count in self._read.items() if key[0] != oldest})

    def _count(self, line: Line) -> None:
        labels = _labels(line)
        self._requests.labels(*labels, line.outcome.value).inc()
        if line.wait_s is not None and line.outcome is not Outcome.REFUSED:
            self._wait.labels(*labels).observe(line.wait_s)
        for histogram, seconds in ((self._ttft, self._first_token(line)), (self._total, self._whole(line))):
            if seconds is not None:
                histogram.labels(*labels).observe(seconds)

    def _first_token(self, line: Line) -> float | None:
        """What counts as the first token's time; None where the answer's times would flatter the rest."""
        if line.ttft_s is not None and line.outcome in {Outcome.OK, Outcome.LEFT}:
            return line.ttft_s
        return self._given_up(line)

    def _whole(self, line: Line) -> float | None:
        return line.total_s if line.outcome is Outcome.OK else self._given_up(line)

    def _given_up(self, line: Line) -> float | None:
        """Who waited longer than promised and left waited at least so long: else latency would be that of
        the patient alone. Who left before says nothing of us."""
        patient = line.outcome is Outcome.LEFT and line.total_s is not None
        return line.total_s if patient and (line.total_s or 0.0) >= self._promised_s else None

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"trimtab_door_{name}_seconds", text, _BY, buckets=self.edges, registry=self.registry
        )

    def _counter(self, name: str, text: str, by: tuple[str, ...] = ()) -> Total:
        return Total(f"trimtab_door_{name}", text, by, registry=self.registry)


def _labels(line: Line) -> tuple[str, str, str, str]:
    return line.pool, line.slot, line.class_, str(line.status)
