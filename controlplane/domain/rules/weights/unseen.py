"""Unseen: an instance whose readings are missing, stale or frozen keeps its last weight."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.explanation import Step, Vote
from controlplane.domain.readings import CAUSES, Floats, Signal
from controlplane.domain.rules.base import absent, figure
from controlplane.domain.rules.weights.base import NAMED, WeightRule, WeightView

ID = "unseen"


class Code(StrEnum):
    """Why."""

    KEPT = "unseen_kept"
    NOBODY = "unseen_nobody"


WORDS: Mapping[str, str] = {
    Code.KEPT: "{unseen} can't be trusted and keep their last weights",
    Code.NOBODY: "every instance is seen",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Keep the last weight of what is unseen; the first few are named with their cause."""
    kept = np.where(view.unseen, view.last, weights)
    members = np.flatnonzero(view.unseen)
    causes = view.pool.column(Signal.RUNNING).cause[view.rows]
    inputs = (
        figure("unseen", int(members.size), "instances"),
        *(
            absent("running", "requests", CAUSES[int(causes[member])], subject=view.subject(member))
            for member in members[:NAMED].tolist()
        ),
    )
    return kept, Step(ID, Code.KEPT if members.size else Code.NOBODY, Vote.ABSTAIN, inputs)


RULE = WeightRule(ID, Code, WORDS, shape)
