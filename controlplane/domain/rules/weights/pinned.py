"""A person's pin of a weight: it stands above every rule, also while the pool can't be seen; a hold stands
above it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.numbers import significant
from controlplane.domain.readings import Floats
from controlplane.domain.rules.weights.base import NAMED, WeightRule, WeightView

ID = "weight_pin"

USUAL = 100
"""A pin's level for a pool's usual weight."""


class Code(StrEnum):
    """Why."""

    PINNED = "weight_pinned"
    FREE = "weight_pinned_by_nobody"


WORDS: Mapping[str, str] = {
    Code.PINNED: "{detail}",
    Code.FREE: "nobody pins a weight",
}


def shape(view: WeightView, weights: Floats) -> tuple[Floats, Step]:
    """Each pinned weight as it is pinned; the others as they are."""
    pins = {} if view.pool.holds else view.pool.weight_pins
    rows = [row for row in range(len(weights)) if view.subject(row) in pins]
    shaped = weights.copy()
    for row in rows:
        shaped[row] = (pins[view.subject(row)].level or USUAL) / USUAL
    told = [pins[view.subject(row)] for row in rows[:NAMED]]
    detail = "; ".join(f"{pin.author} pins it at {pin.level} %: {pin.reason}" for pin in told)
    proposals = tuple(
        Proposal(Verb.SET, significant(float(shaped[row])), view.subject(row)) for row in rows[:NAMED]
    )
    return shaped, Step(ID, Code.PINNED if rows else Code.FREE, Vote.ABSTAIN, (), proposals, detail=detail)


RULE = WeightRule(ID, Code, WORDS, shape)
