"""Where an instance stands in its life, and what follows: no clock, no sockets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """A phase as the inventory names it."""

    REQUESTED = "requested"
    LOADING = "loading"  # weights on their way; its port is refused
    HEALTHY = "healthy"  # its socket answers; no completion was asked of it yet
    WARMING = "warming"  # its warm-up request is under way
    SERVING = "serving"
    DRAINING = "draining"  # leaving, falling asleep, or only said to be leaving
    ASLEEP = "asleep"  # process alive, weights in host memory
    WAKING = "waking"
    GONE = "gone"


class Level(StrEnum):
    """What can be wanted of an instance."""

    AWAKE = "awake"
    ASLEEP = "asleep"
    GONE = "gone"


LISTED = frozenset({Phase.HEALTHY, Phase.WARMING, Phase.SERVING, Phase.DRAINING, Phase.ASLEEP})
"""Phases in which `/metrics` and `/health` are answered: those that discovery lists."""

HOLDS_NONE = frozenset({Phase.ASLEEP, Phase.GONE})
"""Phases in which an instance is not awake: its GPUs are free for another."""

UNBREAKABLE = frozenset({Phase.REQUESTED, Phase.LOADING, Phase.GONE})
"""Phases in which nothing runs that could break."""

_UP = {
    Phase.REQUESTED: Phase.LOADING,
    Phase.LOADING: Phase.HEALTHY,
    Phase.HEALTHY: Phase.WARMING,
    Phase.WARMING: Phase.SERVING,
    Phase.WAKING: Phase.WARMING,
}
_LOADS_ON = frozenset({Phase.REQUESTED, Phase.LOADING})
_FROM_SLEEP = {Level.AWAKE: Phase.WAKING, Level.ASLEEP: None, Level.GONE: Phase.GONE}
_UNDISTURBED = {
    Level.AWAKE: frozenset(Phase) - {Phase.ASLEEP},
    Level.ASLEEP: frozenset({*_LOADS_ON, Phase.WAKING, Phase.ASLEEP, Phase.GONE}),
    Level.GONE: frozenset({Phase.ASLEEP, Phase.GONE}),
}
"""By the level that is wanted: phases that an order lets come to their end first."""


@dataclass(slots=True)
class Record:
    """One instance. `gpus`: indices on its node; `leaving`: `draining` for good, and not only said so;
    `ready_at`: when a warm-up was last answered, epoch seconds."""

    instance_id: str
    pool: str
    node: str
    gpus: tuple[int, ...]
    lent_by: str | None
    managed: bool
    started_at: float
    phase: Phase
    wanted: Level = Level.AWAKE
    leaving: bool = False
    ready_at: float | None = None

    @property
    def slot(self) -> str:
        """The name that stays when it starts anew."""
        return self.instance_id.rpartition("/")[2].partition("@")[0]

    @property
    def holds(self) -> bool:
        """Whether its GPUs are its own: awake, or about to be."""
        return self.phase not in HOLDS_NONE or (self.phase is Phase.ASLEEP and self.wanted is Level.AWAKE)

    @property
    def in_host_memory(self) -> bool:
        """Whether host memory has to have room for its weights."""
        return self.phase is Phase.ASLEEP or self.wanted is Level.ASLEEP

    @property
    def accepts(self) -> bool:
        """Whether it takes completions."""
        return self.phase in {Phase.HEALTHY, Phase.WARMING, Phase.SERVING} or (
            self.phase is Phase.DRAINING and not self.leaving
        )


def following(record: Record) -> Phase | None:
    """The phase after this one, once this one's work is done; None at rest."""
    if record.phase is Phase.ASLEEP:
        return _FROM_SLEEP[record.wanted]
    if record.phase is Phase.DRAINING and record.leaving:
        return Phase.GONE if record.wanted is Level.GONE else Phase.ASLEEP
    if record.wanted is Level.AWAKE or record.phase in _LOADS_ON:
        return _UP.get(record.phase)
    return None if record.phase is Phase.GONE else Phase.DRAINING


def at_once(record: Record) -> Phase | None:
    """The phase that an order for its wanted level puts it in before this one's work is done."""
    if record.phase in _UNDISTURBED[record.wanted] or record.leaving:
        return None
    return Phase.WAKING if record.wanted is Level.AWAKE else Phase.DRAINING
