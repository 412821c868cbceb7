"""Cooldown: after a change the pool rests, so that its effect is seen before the next one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import CapacityView, Rule, figure

ID = "cooldown"


class Code(StrEnum):
    """Why."""

    RESTS = "cooldown_rests"
    OVER = "cooldown_over"


WORDS: Mapping[str, str] = {
    Code.RESTS: "it rests {rest} after a change, and the last was {changed} ago",
    Code.OVER: "its last change is long enough ago",
}


def propose(view: CapacityView, so_far: Merge) -> Step:
    """No growth within `grow_cooldown_s` of growth, no shrinking within `shrink_cooldown_s` of any
    change. A level already decided may be asked for again: that is no new change."""
    capacity, state, before = view.pool.policy.capacity, view.pool.state, view.before
    grew, shrank = _since(view, state.last_grow_at), _since(view, state.last_shrink_at)
    decided = before if state.last_target is None else state.last_target
    proposals = []
    if grew is not None and grew < capacity.grow_cooldown_s:
        proposals.append(Proposal(Verb.AT_MOST, float(max(before, decided))))
    if any(each is not None and each < capacity.shrink_cooldown_s for each in (grew, shrank)):
        proposals.append(Proposal(Verb.AT_LEAST, float(min(before, decided))))
    cut = any(_cuts(proposal, so_far.value) for proposal in proposals)
    growing = so_far.value > before
    since = [each for each in (grew, None if growing else shrank) if each is not None]
    rest = capacity.grow_cooldown_s if growing else capacity.shrink_cooldown_s
    inputs = (
        figure("changed", min(since, default=None), "seconds"),
        figure("rest", rest, "seconds"),
    )
    return Step(ID, Code.RESTS if cut else Code.OVER, Vote.ABSTAIN, inputs, tuple(proposals))


def _since(view: CapacityView, at: float | None) -> float | None:
    return None if at is None else view.pool.now - at


def _cuts(proposal: Proposal, value: float) -> bool:
    bound = proposal.value if proposal.value is not None else value
    return value > bound if proposal.verb is Verb.AT_MOST else value < bound


RULE = Rule(ID, Code, WORDS, propose)
