"""A person's pin: a size that stands above every rule but the policy's bounds, and a hold.

What is not seen may be busy, so a pin below what is there waits for sight as any shrink does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "pin"


class Code(StrEnum):
    """Why."""

    PINNED = "pinned_by_person"
    UNSEEN = "pinned_unseen"
    FREE = "pinned_by_nobody"


WORDS: Mapping[str, str] = {
    Code.PINNED: "{detail}",
    Code.UNSEEN: "{detail}; it is not seen well enough to shrink to that",
    Code.FREE: "nobody pins it",
}


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """The newest pin's number, as far as it is safe."""
    pin = view.pool.pin
    if pin is None or pin.level is None:
        return Step(ID, Code.FREE, Vote.ABSTAIN)
    unseen = view.pool.blind or not view.pool.inventory_known
    waits = unseen and pin.level < view.before
    inputs = (
        figure("pinned", pin.level, "instances"),
        figure("left", None if pin.until is None else pin.until - view.pool.now, "seconds"),
    )
    proposals = () if waits else (Proposal(Verb.SET, float(pin.level)),)
    detail = f"{pin.author} pins it at {pin.level}: {pin.reason}"
    return Step(ID, Code.UNSEEN if waits else Code.PINNED, Vote.ABSTAIN, inputs, proposals, detail=detail)


RULE = Rule(ID, Code, WORDS, propose)
