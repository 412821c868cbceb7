"""Lines into histograms and counts, as Prometheus series. `names.py` bounds how many there can be."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from controlplane.adapters.engines.door import EDGES_S
from controlplane.door.line import Line, Malformed, Outcome, parse
from controlplane.door.names import OTHER, Names
from controlplane.door.reads import Reads
from controlplane.door.series import Counts, Histograms

PROMISED_S = 1.0
"""What counts as long to wait where no policy promises anything, seconds."""

WAITING_MAX = 1000
"""Lines of names not known yet, at most; beyond it they are counted at once."""

_BY = ("pool", "slot", "class", "status")


class Tally:
    """What was read so far. `take` may be called while another thread collects, and a third one names.

    A line of a pool or slot that the gateway has not named waits until it was asked once more, for a member
    may be new. `targets_s`, seconds, are histogram edges too: the share of requests within one is exact.
    """

    def __init__(self, targets_s: Collection[float] = (), names: Names | None = None) -> None:
        self.edges = tuple(sorted({*EDGES_S, *targets_s}))
        self._promised_s = min(targets_s, default=PROMISED_S)
        self._names = names or Names()
        self._waiting: list[Line] = []
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
        self._crowded = self._counter(
            "crowded_lines", "Lines counted as `other`: names not known, or too many label sets."
        )
        self.reads = Reads()
        self._lock = threading.Lock()

    def take(self, raw: bytes) -> Line | None:
        """Count one line; answers it, None where it is none of ours. Never raises."""
        try:
            line = parse(raw)
        except Malformed:
            self._malformed.inc()
            return None
        self._lines.inc()
        self.reads.add(line)
        if not self._waits(line):
            self._count(line)
        return line

    def page(self) -> str:
        """All series in the text format of Prometheus."""
        histograms = self._wait.page(), self._ttft.page(), self._total.page()
        counts = self._requests, self._lines, self._malformed, self._crowded
        return "".join((*histograms, *(each.page() for each in counts)))

    def waiting(self) -> int:
        """How many lines wait for their names."""
        with self._lock:
            return len(self._waiting)

    def name(self, pools: Iterable[str], slots: Iterable[tuple[str, str]], waited: int) -> None:
        """What the gateway named, slots with their pool. The first `waited` lines that wait are counted."""
        with self._lock:
            self._names.learn(pools, slots)
            due, self._waiting = self._waiting[:waited], self._waiting[waited:]
        for line in due:
            self._count(line)

    def _waits(self, line: Line) -> bool:
        with self._lock:
            waits = not self._names.knows(line) and len(self._waiting) < WAITING_MAX
            if waits:
                self._waiting.append(line)
            return waits

    def _count(self, line: Line) -> None:
        with self._lock:
            labels = self._names.labels(line)
        if OTHER in labels:
            self._crowded.inc()
        self._requests.inc(*labels)
        place = labels[: len(_BY)]
        if line.wait_s is not None and line.outcome is not Outcome.REFUSED:
            self._wait.observe(place, line.wait_s)
        for histogram, seconds in ((self._ttft, self._first_token(line)), (self._total, self._whole(line))):
            if seconds is not None:
                histogram.observe(place, seconds)

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

    def _histogram(self, name: str, text: str) -> Histograms:
        return Histograms(f"trimtab_door_{name}_seconds", text, _BY, self.edges)

    def _counter(self, name: str, text: str, by: tuple[str, ...] = ()) -> Counts:
        return Counts(f"trimtab_door_{name}", text, by)
