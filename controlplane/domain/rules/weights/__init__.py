"""The rules about routing weights, one a file, in the order in which they shape them."""

from __future__ import annotations

from controlplane.domain.rules.weights import bounds, cross_check, deadband, speed, step, unseen
from controlplane.domain.rules.weights.base import WeightRule, WeightView

ALL: tuple[WeightRule, ...] = (
    speed.RULE,
    cross_check.RULE,
    deadband.RULE,
    unseen.RULE,
    step.RULE,
    bounds.RULE,
)

__all__ = ["ALL", "WeightRule", "WeightView"]
