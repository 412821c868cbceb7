"""A person's hold: the last word, whatever the rules say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure
from controlplane.domain.view import PoolView

ID = "hold"


class Code(StrEnum):
    """Why."""

    HELD = "held_by_person"
    FREE = "held_by_nobody"


WORDS: Mapping[str, str] = {
    Code.HELD: "{detail}",
    Code.FREE: "nobody holds it",
}


def assess(view: PoolView) -> Step:
    """The first hold in force, with its author and reason."""
    if not view.holds:
        return Step(ID, Code.FREE, Vote.ABSTAIN)
    hold = view.holds[0]
    left = None if hold.until is None else hold.until - view.now
    return Step(
        ID,
        Code.HELD,
        Vote.BLOCK,
        (figure("since", view.now - hold.since, "seconds"), figure("left", left, "seconds")),
        (Proposal(Verb.HOLD),),
        detail=f"{hold.author} holds it: {hold.reason}",
    )


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """The same for both cycles."""
    return assess(view.pool)


RULE = Rule(ID, Code, WORDS, propose)
