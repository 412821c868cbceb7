"""A metrics source that follows a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import SourceHealth
from controlplane.domain.policy import Policies
from controlplane.ports import MetricsAnswer

Script = Callable[[CycleKind, Policies, float], MetricsAnswer]

SILENCE = MetricsAnswer({}, {}, SourceHealth(queries=0, failures=(("all", "ordered: no answer"),)))
"""What a source that cannot be reached answers: nothing, and says so. It never raises."""


class MemoryMetrics:
    """The metrics port over a queue of answers; the last one is repeated.

    An answer may be a function of (kind, policies, now), for readings that must be fresh.
    `asked` keeps (kind, now) of every question.
    """

    def __init__(self, answers: Iterable[MetricsAnswer | Script] = (SILENCE,)) -> None:
        self._answers: deque[MetricsAnswer | Script] = deque(answers)
        self._last: MetricsAnswer | Script = SILENCE
        self.asked: list[tuple[CycleKind, float]] = []

    def say(self, *answers: MetricsAnswer | Script) -> None:
        """Order the next answers; what was still waiting is dropped."""
        self._answers = deque(answers)

    def read(self, kind: CycleKind, policies: Policies, now: float) -> MetricsAnswer:
        """The next answer of the script."""
        self.asked.append((kind, now))
        if self._answers:
            self._last = self._answers.popleft()
        return self._last(kind, policies, now) if callable(self._last) else self._last
