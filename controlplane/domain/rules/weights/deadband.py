"""Deadband: differences that measurement can't tell from noise are none."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.explanation import Step
from controlplane.domain.readings import Floats
from controlplane.domain.routing import within_deadband
from controlplane.domain.rules.weights.base import WeightRule, WeightView, moved

ID = "deadband"
QUIET = 0.5
"""A weight outside the deadband follows its speed only when that moved by this share of the
deadband: otherwise every cycle would push the noise of every slow instance."""


class Code(StrEnum):
    """Why."""

    EQUALISED = "deadband_equalised"
    NOTHING = "deadband_nothing"


WORDS: Mapping[str, str] = {
    Code.EQUALISED: "differences within the deadband are none",
    Code.NOTHING: "no difference lies within the deadband",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Exactly 1.0 within the deadband; outside it, last weights stay where little has changed."""
    deadband = view.pool.policy.weights.deadband
    equal = within_deadband(weights, deadband)
    still = (equal != 1.0) & (view.last != 1.0) & (np.abs(equal - view.last) <= QUIET * deadband * view.last)
    shaped = np.where(still, view.last, equal)
    return shaped, moved(view, ID, (Code.EQUALISED, Code.NOTHING), weights, shaped)


RULE = WeightRule(ID, Code, WORDS, shape)
