"""What a rule about weights is: it moves a pool's weights together, and says which ones and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from controlplane.domain.explanation import Input, Proposal, Step, Verb, Vote
from controlplane.domain.ids import InstanceId
from controlplane.domain.numbers import significant
from controlplane.domain.readings import Bools, Floats, Signal
from controlplane.domain.rules.base import figure
from controlplane.domain.view import PoolView

NAMED = 8
"""Instances that one step names, those that move most: an explanation is read by people."""


@dataclass(frozen=True, slots=True)
class WeightView:
    """The m instances of a pool that take traffic, in id order; arrays of length m.

    `rows`: their rows in the pool. `last`: last intended weights, 1.0 where there is none.
    `speed`: relative speed, `believed` where it was measured now. `supported`: the largest speed
    that the gateways' counts support. `unseen`: nothing may be raised on what is not seen.
    """

    pool: PoolView
    rows: npt.NDArray[np.intp]
    last: Floats
    speed: Floats
    believed: Bools
    supported: Floats
    unseen: Bools

    def subject(self, member: int) -> InstanceId:
        """The instance id of member number `member`."""
        return self.pool.instances[int(self.rows[member])].instance_id


@dataclass(frozen=True, slots=True)
class WeightRule:
    """One rule about weights; fields as in `Rule`, and a shaping function for all weights at once."""

    id: str
    codes: type[StrEnum]
    words: Mapping[str, str]
    shape: Callable[[WeightView, Floats], tuple[Floats, Step]]


def moved(view: WeightView, rule: str, codes: tuple[str, str], before: Floats, after: Floats) -> Step:
    """A step that names the weights it moved most. `codes`: of a step that moved some, or none."""
    chosen = most(np.abs(after - before))
    proposals = tuple(
        Proposal(Verb.SET, significant(float(after[member])), view.subject(member)) for member in chosen
    )
    return Step(rule, codes[0] if chosen else codes[1], Vote.ABSTAIN, (), proposals)


def most(change: Floats) -> list[int]:
    """Member numbers with the largest changes, at most `NAMED`; none for changes of nothing."""
    order = np.argsort(-np.round(change, 9), kind="stable")[:NAMED]
    return [int(member) for member in order if change[member] > 1e-9]


def speeds_named(view: WeightView, members: list[int]) -> tuple[Input, ...]:
    """The speeds of the given members, with the age of the step time they were measured from."""
    sampled = view.pool.column(Signal.STEP_TIME).sampled_at[view.rows]
    return tuple(
        figure(
            "speed",
            float(view.speed[member]),
            "ratio",
            age_s=view.pool.now - float(sampled[member]) if view.believed[member] else None,
            subject=view.subject(member),
        )
        for member in members
    )
