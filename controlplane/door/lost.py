"""How many lines never came: the gateway's own counts against the lines that were read. Pure.

A request counts as ended where the gateway's total no longer holds it among those in flight. Its line may
still be on its way, so a difference is a loss only when it has lasted: the least difference of the
last looks is what cannot be explained by lines under way, as long as the reader catches up once among
them. Losses are never taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

LOOKS = 10


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the gateway said: its process, and by pool how many requests had ended."""

    pid: int
    ended: Mapping[str, int]


@dataclass(slots=True)
class _Pool:
    """`before`: what had ended before we began to read, so that nobody could have read its line."""

    before: int
    differences: deque[int] = field(default_factory=lambda: deque(maxlen=LOOKS))
    lost: int = 0


@dataclass(slots=True)
class Losses:
    """Lost lines by pool, since this process reads.

    A gateway that restarts counts from zero under another pid, and only lines of that pid are its own.
    """

    _pid: int | None = None
    _pools: dict[str, _Pool] = field(default_factory=dict)
    _of_earlier: dict[str, int] = field(default_factory=dict)

    def look(self, look: Look, read: Mapping[tuple[int, str], int]) -> None:
        """Compare once. `read`: lines by pid and pool, as counted at about the same instant."""
        first = self._pid is None
        if look.pid != self._pid:
            self._begin(look.pid)
        for pool, ended in look.ended.items():
            lines = read.get((look.pid, pool), 0)
            seen = self._pools.setdefault(pool, _Pool(ended - lines if first else 0))
            seen.differences.append(ended - seen.before - lines)
            if len(seen.differences) == LOOKS:
                seen.lost = max(seen.lost, min(seen.differences))

    def by_pool(self) -> Mapping[str, int]:
        """Lost lines by pool."""
        pools = self._of_earlier.keys() | self._pools.keys()
        return {pool: self._of_earlier.get(pool, 0) + self._lost(pool) for pool in pools}

    def _lost(self, pool: str) -> int:
        return self._pools[pool].lost if pool in self._pools else 0

    def _begin(self, pid: int) -> None:
        self._of_earlier = dict(self.by_pool())
        self._pid, self._pools = pid, {}
