"""Bounds of weights: a floor and a ceiling, as multiples of the pool's median weight."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.explanation import Step
from controlplane.domain.readings import Floats
from controlplane.domain.routing import within_range
from controlplane.domain.rules.weights.base import WeightRule, WeightView, moved

ID = "weight_bounds"


class Code(StrEnum):
    """Why."""

    CLIPPED = "weight_bounds_clipped"
    WITHIN = "weight_bounds_within"


WORDS: Mapping[str, str] = {
    Code.CLIPPED: "weights stay between floor and ceiling",
    Code.WITHIN: "every weight is within its bounds",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Clip to the policy's floor and ceiling; what is unseen is never raised."""
    policy = view.pool.policy.weights
    clipped = within_range(weights, policy.floor, policy.ceiling, view.unseen)
    return clipped, moved(view, ID, (Code.CLIPPED, Code.WITHIN), weights, clipped)


RULE = WeightRule(ID, Code, WORDS, shape)
