"""Votes: who asks for growth, who allows shrinking, who blocks it. One block stops a shrink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.rules.base import figure

ID = "votes"


class Code(StrEnum):
    """Why."""

    GROW = "votes_grow"
    SHRINK = "votes_shrink"
    BLOCKED = "votes_blocked"
    NO_GROWTH = "votes_nobody_grows"


WORDS: Mapping[str, str] = {
    Code.GROW: "{grow} ask for growth",
    Code.SHRINK: "{shrink_ok} allow shrinking and none blocks it",
    Code.BLOCKED: "{block} block shrinking",
    Code.NO_GROWTH: "no signal asks for growth",
}


def count(before: int, steps: Iterable[Step]) -> Step:
    """Merge the votes of the steps before: without a grower no growth, with a blocker no shrink.

    An abstention changes nothing; neither does agreement by several.
    """
    votes = [step.vote for step in steps]
    proposals = []
    if Vote.BLOCK in votes or Vote.SHRINK_OK not in votes:
        proposals.append(Proposal(Verb.AT_LEAST, float(before)))
    if Vote.GROW not in votes:
        proposals.append(Proposal(Verb.AT_MOST, float(before)))
    inputs = tuple(figure(vote.value, votes.count(vote), "votes") for vote in Vote)
    return Step(ID, _code(votes), Vote.ABSTAIN, inputs, tuple(proposals))


def _code(votes: list[Vote]) -> Code:
    if Vote.GROW in votes:
        return Code.GROW
    if Vote.BLOCK in votes:
        return Code.BLOCKED
    return Code.SHRINK if Vote.SHRINK_OK in votes else Code.NO_GROWTH
