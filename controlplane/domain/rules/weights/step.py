"""Step: no weight moves by more than a share of itself in one cycle."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.explanation import Step
from controlplane.domain.readings import Floats
from controlplane.domain.routing import one_step
from controlplane.domain.rules.weights.base import WeightRule, WeightView, moved

ID = "weight_step"


class Code(StrEnum):
    """Why."""

    LIMITED = "weight_step_limited"
    WITHIN = "weight_step_within"


WORDS: Mapping[str, str] = {
    Code.LIMITED: "weights move by one step a cycle",
    Code.WITHIN: "every change is within one step",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Clamp each change to the policy's step."""
    stepped = one_step(weights, view.last, view.pool.policy.weights.step)
    return stepped, moved(view, ID, (Code.LIMITED, Code.WITHIN), weights, stepped)


RULE = WeightRule(ID, Code, WORDS, shape)
