"""Lines that came since the last look, by process, pool and second, in bounded memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

from controlplane.door.line import Line
from controlplane.door.lost import ANYBODYS, PROCESSES, Key

KEYS_MAX = 10_000
"""A look takes them all away, so this many come only of a flood, or where the gateway does not answer."""


class Reads:
    """Whoever reaches the log's socket can send lines of any process, pool and second, so beyond a bound a
    line loses its second where the gateway itself named its process and pool, and else all three."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._found: Counter[Key] = Counter()
        self._pids: dict[int, None] = {}
        self._pools: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def add(self, line: Line) -> None:
        """Count one line."""
        second = None if line.ended_at is None else int(line.ended_at)
        with self._lock:
            if len(self._found) < self._keys_max or (line.pid, line.pool, second) in self._found:
                self._found[line.pid, line.pool, second] += 1
            elif line.pid in self._pids and line.pool in self._pools:
                self._found[line.pid, line.pool, None] += 1
            else:
                self._found[ANYBODYS] += 1

    def so_far(self) -> Counter[Key]:
        """What came since the last `take`."""
        with self._lock:
            return self._found.copy()

    def take(self, pid: int, pools: Collection[str]) -> Counter[Key]:
        """The same, taken away; `pid` and `pools` are what the gateway just named."""
        with self._lock:
            self._pids.pop(pid, None)
            self._pids[pid] = None
            if len(self._pids) > PROCESSES:
                del self._pids[next(iter(self._pids))]
            self._pools = frozenset(pools)
            found, self._found = self._found, Counter()
            return found
