"""Hysteresis: growing starts later, and shrinking sooner stops, than the need alone would say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "hysteresis"


class Code(StrEnum):
    """Why."""

    REST_TOO_FULL = "hysteresis_rest_too_full"
    NOT_YET = "hysteresis_not_yet"
    PASSED = "hysteresis_passed"


WORDS: Mapping[str, str] = {
    Code.REST_TOO_FULL: "{wanted} would have carried its load at {then} of capacity, at most {shrink_below}",
    Code.NOT_YET: "its load is {now} of capacity, growing starts above {grow_above}",
    Code.PASSED: "its load lies outside the band",
}


def propose(view: CapacityView, so_far: Merge) -> Step:
    """Check a shrink by k at N/(N-k), and growth by load alone against `grow_above`."""
    capacity, load, before = view.pool.policy.capacity, view.load, view.before
    inputs = (
        figure("wanted", so_far.value, "instances"),
        figure("now", _share(load.lower, before), "ratio"),
        figure("then", _share(load.upper, so_far.value), "ratio"),
        figure("shrink_below", capacity.shrink_below, "ratio"),
        figure("grow_above", capacity.grow_above, "ratio"),
    )
    if so_far.value > before and load.lower <= capacity.grow_above * before:
        return Step(ID, Code.NOT_YET, Vote.ABSTAIN, inputs, (Proposal(Verb.AT_MOST, float(before)),))
    floor = (
        before if load.upper is None else min(before, math.ceil(load.upper / capacity.shrink_below - 1e-9))
    )
    code = Code.REST_TOO_FULL if so_far.value < floor else Code.PASSED
    return Step(ID, code, Vote.ABSTAIN, inputs, (Proposal(Verb.AT_LEAST, float(floor)),))


def _share(load: float | None, instances: float) -> float | None:
    return None if load is None or instances <= 0 else load / instances


RULE = Rule(ID, Code, WORDS, propose)
