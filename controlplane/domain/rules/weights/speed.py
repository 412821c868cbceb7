"""Speed: a weight is the measured speed relative to the pool's median."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.explanation import Step, Vote
from controlplane.domain.readings import Floats
from controlplane.domain.rules.base import figure
from controlplane.domain.rules.weights.base import WeightRule, WeightView, most, speeds_named

ID = "speed"


class Code(StrEnum):
    """Why."""

    DIFFERS = "speed_differs"
    ALIKE = "speed_alike"
    UNKNOWN = "speed_unknown"


WORDS: Mapping[str, str] = {
    Code.DIFFERS: "it runs at {speed} of the pool's speed",
    Code.ALIKE: "its instances run alike",
    Code.UNKNOWN: "too few of its instances are busy enough to compare their speeds",
}


def shape(view: WeightView, _weights: Floats) -> tuple[Floats, Step]:
    """Weights equal to relative speeds; those outside the deadband are named."""
    deadband = view.pool.policy.weights.deadband
    apart = np.abs(view.speed - 1.0)
    outside = most(np.where(apart > deadband, apart, 0.0))
    mix = view.pool.mix
    inputs = (
        figure("measured", int(np.count_nonzero(view.believed)), "instances"),
        figure("deadband", deadband, "ratio"),
        figure(f"output_mean_{mix.source}", mix.mix.output_mean, "tokens"),
        *speeds_named(view, outside),
    )
    code = Code.DIFFERS if outside else Code.ALIKE
    if np.count_nonzero(view.believed) < 2 and not outside:
        code = Code.UNKNOWN
    return view.speed, Step(ID, code, Vote.ABSTAIN, inputs)


RULE = WeightRule(ID, Code, WORDS, shape)
