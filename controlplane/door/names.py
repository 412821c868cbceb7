"""Which names have series of their own: whoever reaches the log can send any, and a series is for ever.

Pools and slots are those that the runtime API named, classes the first few, and no slot has more label sets
than a bound, nor all together. All else is `other`: counted, and under no name of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.door.line import DEFAULT_CLASS, NOBODY, Line

OTHER = "other"
CLASSES_MAX = 32
SETS_PER_SLOT = 64
"""Class by status by outcome. An honest slot has about a dozen for each class."""
SETS_MAX = 20_000
"""A thousand instances by a dozen outcomes, and room."""

Labels = tuple[str, str, str, str, str]
"""Pool, slot, class, status and outcome of a series."""


@dataclass(slots=True)
class Names:
    """Names and label sets so far. A name that the gateway no longer says keeps its series."""

    sets_max: int = SETS_MAX
    _pools: set[str] = field(default_factory=set)
    _slots: set[tuple[str, str]] = field(default_factory=set)
    _classes: set[str] = field(default_factory=lambda: {DEFAULT_CLASS})
    _sets: set[Labels] = field(default_factory=set)
    _of_slot: Counter[tuple[str, str]] = field(default_factory=Counter)

    def learn(self, pools: Iterable[str], slots: Iterable[tuple[str, str]]) -> None:
        """What the gateway named; slots with their pool."""
        self._pools.update(pools)
        self._slots.update(slots)

    def knows(self, line: Line) -> bool:
        """Whether its pool and slot were named."""
        return OTHER not in self._place(line)

    def labels(self, line: Line) -> Labels:
        """The series it counts in; new ones only within the bounds."""
        pool, slot = self._place(line)
        whole = pool, slot, self._class(line.class_), status(line), line.outcome.value
        if whole in self._sets or self._admit(whole):
            return whole
        if self._of_slot[pool, slot]:
            return pool, slot, OTHER, OTHER, line.outcome.value
        return OTHER, OTHER, OTHER, OTHER, line.outcome.value

    def _admit(self, labels: Labels) -> bool:
        place = labels[:2]
        if len(self._sets) >= self.sets_max or self._of_slot[place] >= SETS_PER_SLOT:
            return False
        self._sets.add(labels)
        self._of_slot[place] += 1
        return True

    def _place(self, line: Line) -> tuple[str, str]:
        """A request that reached no pool (the gateway's own answers) has no name of one."""
        if line.pool in self._pools:
            named = line.slot == NOBODY or (line.pool, line.slot) in self._slots
            return line.pool, line.slot if named else OTHER
        nowhere = line.arrived_at is None and line.slot == NOBODY
        return (NOBODY, NOBODY) if nowhere else (OTHER, OTHER)

    def _class(self, name: str) -> str:
        if name not in self._classes and len(self._classes) < CLASSES_MAX:
            self._classes.add(name)
        return name if name in self._classes else OTHER


def status(line: Line) -> str:
    """As a label. HAProxy writes -1 or 0 for a request that got no answer."""
    return str(line.status) if line.status > 0 else NOBODY
