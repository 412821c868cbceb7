"""Maximum: no rule's wish is larger than the policy allows, however large the demand."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "maximum"


class Code(StrEnum):
    """Why."""

    CAPPED = "maximum_caps"
    WITHIN = "maximum_within"


WORDS: Mapping[str, str] = {
    Code.CAPPED: "its policy allows at most {maximum} and {wanted.plain} are wanted",
    Code.WITHIN: "its policy allows as many",
}


def propose(view: CapacityView, so_far: Merge) -> Step:
    """Cap what the evidence asks for."""
    maximum = view.pool.policy.capacity.maximum
    code = Code.CAPPED if so_far.value > maximum else Code.WITHIN
    inputs = (figure("maximum", maximum, "instances"), figure("wanted", so_far.value, "instances"))
    return Step(ID, code, Vote.ABSTAIN, inputs, (Proposal(Verb.AT_MOST, float(maximum)),))


RULE = Rule(ID, Code, WORDS, propose)
