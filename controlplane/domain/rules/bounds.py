"""Bounds: never below the policy's minimum, and no growth beyond its maximum.

A pool that is already larger than its maximum (the policy was edited) gets there like any other
shrink: rule `maximum` asks for it early, so that votes, steps and cooldown still have their say.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "bounds"


class Code(StrEnum):
    """Why."""

    MINIMUM = "bounds_minimum"
    MAXIMUM = "bounds_maximum"
    WITHIN = "bounds_within"


WORDS: Mapping[str, str] = {
    Code.MINIMUM: "its policy keeps at least {minimum}",
    Code.MAXIMUM: "its policy allows at most {maximum}",
    Code.WITHIN: "its policy allows it",
}


def propose(view: CapacityView, so_far: Merge) -> Step:
    """At least `minimum`, at most the larger of `maximum` and what is."""
    capacity = view.pool.policy.capacity
    most = max(capacity.maximum, view.before)
    code = Code.WITHIN
    if so_far.value < capacity.minimum:
        code = Code.MINIMUM
    elif so_far.value > most:
        code = Code.MAXIMUM
    return Step(
        ID,
        code,
        Vote.ABSTAIN,
        (figure("minimum", capacity.minimum, "instances"), figure("maximum", capacity.maximum, "instances")),
        (Proposal(Verb.AT_LEAST, float(capacity.minimum)), Proposal(Verb.AT_MOST, float(most))),
    )


RULE = Rule(ID, Code, WORDS, propose)
