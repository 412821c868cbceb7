"""The story a demonstration tells: a pure function of its length. Who carries it out: `act.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SHORTEST_S = 60.0
"""Below this a phase is shorter than what it wants to show."""

LONGEST_S = 86_400.0
"""Above this its traffic, all drawn beforehand, asks for gigabytes. Without an end it is drawn hourly."""

UNTIMED_S = 420.0
"""Length of the story where nobody says how long; the fleet then runs on."""


class Deed(StrEnum):
    """What is done to the fleet, or to the metrics source, when a phase begins."""

    NOTHING = "nothing"
    THROTTLE = "throttle"
    SURGE = "surge"
    STOP = "prometheus_stopped"
    HANG = "prometheus_hanging"
    EMPTY = "prometheus_empty"
    HALF = "prometheus_half"


FAILURES = (Deed.STOP, Deed.HANG, Deed.EMPTY, Deed.HALF)
"""The four ways in which the metrics source fails. Each is undone when its phase ends."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the story, from `from_s` up to but without `to_s`, seconds from the first request.

    `title` says what happens, `look` what to look at.
    """

    name: str
    from_s: float
    to_s: float
    deed: Deed
    title: str
    look: str


_BLIND = "no pool shrinks and every weight stays where it is"
_AGAIN = "readings come back; windows that reach into the gap are not used"

_STORY: tuple[tuple[str, float, Deed, str, str], ...] = (
    ("warm-up", 0.06, Deed.NOTHING, "traffic begins", "running requests rise until the pool is busy"),
    ("baseline", 0.05, Deed.NOTHING, "a healthy fleet", "all weights of chat-8b alike, busyness even"),
    (
        "throttled",
        0.14,
        Deed.THROTTLE,
        "one card of chat-8b drops to 0.4 of its speed",
        "its measured speed falls, and its weight follows",
    ),
    (
        "surge",
        0.16,
        Deed.SURGE,
        "a crowd comes to chat-8b at once, more than it can serve",
        "offline work in the buffer falls asleep, and chat-8b wakes on its GPUs; the late P95 pages",
    ),
    (
        "return",
        0.28,
        Deed.NOTHING,
        "the crowd has gone",
        "what was borrowed is drained and given back, offline work wakes, the page resolves",
    ),
    ("prometheus-stopped", 0.05, Deed.STOP, "Prometheus is stopped", _BLIND),
    ("recovery-1", 0.02, Deed.NOTHING, "Prometheus is started again", _AGAIN),
    ("prometheus-hanging", 0.05, Deed.HANG, "Prometheus accepts queries and never answers", _BLIND),
    ("recovery-2", 0.02, Deed.NOTHING, "Prometheus answers again", _AGAIN),
    ("prometheus-empty", 0.07, Deed.EMPTY, "Prometheus knows no target any more", _BLIND),
    ("recovery-3", 0.02, Deed.NOTHING, "all targets are back", _AGAIN),
    ("prometheus-half", 0.08, Deed.HALF, "Prometheus sees half of the targets", _BLIND),
)
"""Name, share of the whole, deed, title and look of every phase; the shares sum to 1."""


def story(duration_s: float) -> tuple[Phase, ...]:
    """The phases of a demonstration of `duration_s`, one after another without a gap.

    Raises ValueError below `SHORTEST_S`.
    """
    if duration_s < SHORTEST_S:
        raise ValueError(f"{duration_s:g} s is too short for the story; allowed: at least {SHORTEST_S:g} s")
    phases, start = [], 0.0
    for name, share, deed, title, look in _STORY:
        end = duration_s if name == _STORY[-1][0] else start + share * duration_s
        phases.append(Phase(name, start, end, deed, title, look))
        start = end
    return tuple(phases)


def open_end(phases: tuple[Phase, ...]) -> Phase:
    """What follows the story where the demonstration has no end: everything is mended, and runs on."""
    look = "the throttled card is back at its speed; stop with Ctrl-C"
    return Phase("afterwards", phases[-1].to_s, float("inf"), Deed.NOTHING, "the fleet runs on", look)
