"""Step limit: no decision changes more than a share of the pool, and always at least one instance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "step_limit"


class Code(StrEnum):
    """Why."""

    LIMITED = "step_limited"
    WITHIN = "step_within"


WORDS: Mapping[str, str] = {
    Code.LIMITED: "one decision adds at most {up} or takes {down}",
    Code.WITHIN: "the change is within one step",
}


def propose(view: CapacityView, so_far: Merge) -> Step:
    """At most `grow_step` up and `shrink_step` down, as shares of what is."""
    capacity, before = view.pool.policy.capacity, view.before
    up = max(1, math.floor(capacity.grow_step * before))
    down = max(1, math.floor(capacity.shrink_step * before))
    limited = so_far.value > before + up or so_far.value < before - down
    return Step(
        ID,
        Code.LIMITED if limited else Code.WITHIN,
        Vote.ABSTAIN,
        (figure("up", up, "instances"), figure("down", down, "instances")),
        (Proposal(Verb.AT_MOST, float(before + up)), Proposal(Verb.AT_LEAST, float(max(0, before - down)))),
    )


RULE = Rule(ID, Code, WORDS, propose)
