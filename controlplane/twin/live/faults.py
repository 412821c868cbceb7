"""Faults on command: what they are called, what they change, and what they may be set to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What can be ordered to go wrong with one instance."""

    SLOW = "slow"  # a slower card, nothing else to be seen
    THROTTLE = "throttle"  # a slower card, with its clock down and its temperature up
    HANG = "hang"  # accepts connections, never answers, takes no step
    CRASH = "crash"  # the process dies with its requests and is started again
    LYING = "lying"  # /metrics claims to be idle and fast
    FROZEN = "frozen"  # /metrics answers 200 with the same bytes, while the engine serves on


DEFAULT_FACTOR = 0.5
FACTOR_RANGE = (0.05, 2.0)
DURATION_RANGE_S = (0.1, 86_400.0)

HELP = {
    FaultKind.SLOW: "runs at --factor of its speed",
    FaultKind.THROTTLE: "the same, with the SM clock down and the temperature up",
    FaultKind.HANG: "accepts requests and never answers",
    FaultKind.CRASH: "dies with its requests, and is started again",
    FaultKind.LYING: "its /metrics claims to be idle and fast",
    FaultKind.FROZEN: "its /metrics stands still, byte by byte, while it serves on",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """An ordered fault in force. Times in epoch seconds; `until` is None for "until cleared"."""

    kind: FaultKind
    slot: str
    factor: float
    since: float
    until: float | None

    def over(self, now: float) -> bool:
        """Whether its time is up."""
        return self.until is not None and now >= self.until


def parse(body: object, slots: frozenset[str], now: float) -> Fault:
    """A fault from a request's JSON. ValueError says what is wrong and what is allowed."""
    if not isinstance(body, dict):  # a bad request, not a bad call
        raise ValueError(  # noqa: TRY004
            'the body must be an object such as {"kind": "slow", "instance": "chat-8b-01"}'
        )
    unknown = sorted(set(body) - {"kind", "instance", "factor", "for_s"})
    if unknown:
        raise ValueError(f"unknown fields {unknown}; allowed: kind, instance, factor, for_s")
    kind, slot = body.get("kind"), slot_of(str(body.get("instance")))
    if not isinstance(kind, str) or kind not in set(FaultKind):
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(FaultKind)}")
    if slot not in slots:
        raise ValueError(f"unknown instance {body.get('instance')!r}; known: {', '.join(sorted(slots))}")
    factor = number(body, "factor", DEFAULT_FACTOR, FACTOR_RANGE)
    for_s = body.get("for_s")
    until = None if for_s is None else now + number(body, "for_s", 0.0, DURATION_RANGE_S)
    return Fault(FaultKind(kind), slot, factor, now, until)


def slot_of(name: str) -> str:
    """The slot in an instance id (`cluster/slot@start`); a plain slot is itself."""
    return name.rpartition("/")[2].partition("@")[0]


def number(body: dict[str, object], field: str, default: float, allowed: tuple[float, float]) -> float:
    """A field's number. ValueError where it is none, or outside `allowed`."""
    value = body.get(field, default)
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{field} is {value!r}; allowed {low:g}..{high:g}")
    return float(value)
