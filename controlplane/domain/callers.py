"""Latency as callers saw it, with its source.

The door's own histograms where there is a gateway exporter. Else an estimate: the engines' quantile and
the mean wait at the gateway. Engines start their watch after that wait, so alone they would call a pool fast
that drowns at its door. The sum of a P95 and a mean is no P95 of anything; it is named for what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.readings import Cause, Known, Missing, PoolSignal, Reading
from controlplane.domain.trust import NOT_OFFERED
from controlplane.domain.view import PoolView

AT_THE_DOOR: Mapping[PoolSignal, PoolSignal] = {
    PoolSignal.TTFT_P95: PoolSignal.DOOR_TTFT_P95,
    PoolSignal.E2E_P95: PoolSignal.DOOR_E2E_P95,
}
"""What the engines say, and the same as the door says it. Pace between tokens no gateway can tell."""


_SPOKEN = frozenset({Cause.NO_TRAFFIC, Cause.TOO_FEW, Cause.UNRESOLVABLE})
"""The door is there, and has said that there is nothing to say."""


class Source(StrEnum):
    """Whose watch it was."""

    DOOR = "door"
    ENGINE_AND_QUEUE = "engine+queue"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Latency:
    """One quantile in seconds, or why there is none, and its source."""

    reading: Reading
    source: Source


def latency(view: PoolView, signal: PoolSignal, target_s: float) -> Latency:
    """The door's word where there is a door. One that is silent though it should speak is not replaced by a
    good word of the engines, only by one above the target: what they see is a part of what callers wait."""
    estimate = _estimate(view, signal)
    door = view.reading(AT_THE_DOOR[signal]) if signal in AT_THE_DOOR else Missing(Cause.NOT_ASKED)
    if not isinstance(door, Known) and (
        door.cause in NOT_OFFERED or (door.cause not in _SPOKEN and _above(estimate, target_s))
    ):
        return estimate
    return Latency(door, Source.DOOR)


def _above(estimate: Latency, target_s: float) -> bool:
    return isinstance(estimate.reading, Known) and estimate.reading.value > target_s


def _estimate(view: PoolView, signal: PoolSignal) -> Latency:
    engine = view.reading(signal)
    wait_s = mean_wait_s(view)
    if not isinstance(engine, Known) or signal not in AT_THE_DOOR or wait_s is None:
        return Latency(engine, Source.ENGINE)
    return Latency(Known(engine.value + wait_s, engine.sampled_at), Source.ENGINE_AND_QUEUE)


def mean_wait_s(view: PoolView) -> float | None:
    """Mean wait at the gateway by Little's law: those who wait by those who leave a second. None where
    either is unknown, or nothing leaves while somebody waits."""
    queue, leaves = view.reading(PoolSignal.GATEWAY_QUEUE), view.reading(PoolSignal.COMPLETIONS)
    if not isinstance(queue, Known):
        return None
    if queue.value == 0.0:
        return 0.0
    return queue.value / leaves.value if isinstance(leaves, Known) and leaves.value > 0.0 else None
