"""Callers who give up: their requests are in no latency histogram, so a good P95 proves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Step, Vote
from controlplane.domain.readings import Cause, Known, PoolSignal
from controlplane.domain.rules.base import CapacityView, Rule, figure, not_offered, seen

ID = "cancelled"
HIGH = 0.10
"""Share of requests given up from which the survivors' latency is no evidence."""


class Code(StrEnum):
    """Why."""

    HIGH = "cancelled_high"
    LOW = "cancelled_low"
    NO_OPINION = "cancelled_no_opinion"
    MISSING = "cancelled_missing"


WORDS: Mapping[str, str] = {
    Code.HIGH: "{cancelled_ratio} of its requests are given up, above {bound}",
    Code.LOW: "few of its requests are given up ({cancelled_ratio})",
    Code.NO_OPINION: "there is nothing to tell of requests given up",
    Code.MISSING: "it is unknown how many requests are given up: {cancelled_ratio}",
}


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Block shrinking while many give up, and while that is unknown."""
    ratio = view.pool.reading(PoolSignal.CANCELLED_RATIO)
    inputs = (seen(PoolSignal.CANCELLED_RATIO, ratio, view.pool.now), figure("bound", HIGH, "ratio"))
    if isinstance(ratio, Known):
        high = ratio.value > HIGH
        return Step(ID, *((Code.HIGH, Vote.BLOCK) if high else (Code.LOW, Vote.SHRINK_OK)), inputs)
    if ratio.cause is Cause.NO_TRAFFIC or not_offered(ratio):
        return Step(ID, Code.NO_OPINION, Vote.ABSTAIN, inputs)
    return Step(ID, Code.MISSING, Vote.BLOCK, inputs)


RULE = Rule(ID, Code, WORDS, propose)
