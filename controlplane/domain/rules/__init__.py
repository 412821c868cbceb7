"""The rules about a pool's size, one a file, in the order in which they speak.

First the evidence (what is needed, who objects), then the count of votes, then the dampers, then
the bounds, and last a person. Later words win; every clamp is recorded.
"""

from __future__ import annotations

from controlplane.domain.rules import (
    bounds,
    cancelled,
    cooldown,
    coverage,
    human_hold,
    hysteresis,
    in_flight,
    latency,
    maximum,
    offered_load,
    pinned,
    queue,
    stabilise,
    step_limit,
    utilisation,
    votes,
)
from controlplane.domain.rules.base import Rule

EVIDENCE: tuple[Rule, ...] = (
    offered_load.RULE,
    hysteresis.RULE,  # right behind the load: it tempers the load's wish and nobody else's
    queue.RULE,
    utilisation.RULE,
    latency.RULE,
    cancelled.RULE,
    in_flight.RULE,
    coverage.RULE,
)
"""What the signals say. Their votes are counted by `votes`."""

WISHES: tuple[Rule, ...] = (maximum.RULE,)
"""What no wish may ask for, however good its evidence. Spoken before the votes are counted."""

DAMPERS: tuple[Rule, ...] = (step_limit.RULE, cooldown.RULE)

LIMITS: tuple[Rule, ...] = (stabilise.RULE, pinned.RULE, bounds.RULE, human_hold.RULE)
"""The last words. `stabilise` comes first, so that what was wanted until here is what is remembered."""

ALL: tuple[Rule, ...] = EVIDENCE + WISHES + DAMPERS + LIMITS

__all__ = ["ALL", "DAMPERS", "EVIDENCE", "LIMITS", "WISHES", "Rule", "votes"]
