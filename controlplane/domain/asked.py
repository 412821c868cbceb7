"""Sizes that are orders: somebody else (an HPA, KEDA) brings about the number that we ask for.

What is asked for and does not stand is one of two things. It has never stood: it is on its way, for as
long as a cold start may take. Or it stood and was not asked to leave: then it is unseen, like an
instance without a sample, because targets vanish more often than half a pool dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.policy import Mode, PoolPolicy
from controlplane.domain.profile import Profile, start_patience_s
from controlplane.domain.state import PoolState

ID = "level"


class Code(StrEnum):
    """What an order for a pool's size comes to."""

    STANDS = "level_stands"
    ORDERED = "level_ordered"
    WATCHES = "level_watches"


WORDS: Mapping[str, str] = {
    Code.STANDS: "the number that is asked for stands at {asked}",
    Code.ORDERED: "the number that is asked for was {asked}",
    Code.WATCHES: "no number is asked for before the pool has been seen for {window} (now {watched})",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Instances of an order that do not stand. `rising`: on their way; `vanished`: unseen."""

    rising: int = 0
    vanished: int = 0


def asked(policy: PoolPolicy, profile: Profile, state: PoolState, now: float, standing: int) -> Asked:
    """Where `standing` instances are fewer than the last order of the pool. A level beyond the policy's
    maximum is no order any more."""
    if policy.capacity_mode is not Mode.AUTO or state.last_target is None:
        return Asked()
    target = min(state.last_target, policy.capacity.maximum)
    stood = min(target, max(standing, state.stood or 0))
    patient = state.last_grow_at is not None and now - state.last_grow_at < start_patience_s(profile)
    return Asked(target - stood if patient else 0, max(0, stood - standing))


def stood(state: PoolState, standing: int, target: int) -> int:
    """How many of a level have stood at once: none beyond it, and none of those it has let go."""
    return min(target, max(standing, state.stood or 0))
