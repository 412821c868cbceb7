"""Cross-check: no engine is faster than what the gateways saw it get done.

An engine that claims to be idle and fast would otherwise attract all traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.explanation import Step
from controlplane.domain.readings import Floats
from controlplane.domain.rules.weights.base import WeightRule, WeightView, moved

ID = "cross_check"


class Code(StrEnum):
    """Why."""

    UNSUPPORTED = "cross_check_unsupported"
    AGREES = "cross_check_agrees"


WORDS: Mapping[str, str] = {
    Code.UNSUPPORTED: "the gateways saw less done than the engine claims",
    Code.AGREES: "the gateways' counts support the speeds",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Cap each weight at the speed that the gateways' counts support."""
    capped = np.minimum(weights, view.supported)
    return capped, moved(view, ID, (Code.UNSUPPORTED, Code.AGREES), weights, capped)


RULE = WeightRule(ID, Code, WORDS, shape)
