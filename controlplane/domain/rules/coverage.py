"""Hold on low coverage: what cannot be seen may be busy."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Input, Step, Vote
from controlplane.domain.readings import CAUSES, Cause, Signal
from controlplane.domain.rules.base import CapacityView, Rule, figure
from controlplane.domain.view import PoolView

ID = "coverage"


class Code(StrEnum):
    """Why."""

    LOW = "coverage_low"
    NO_INVENTORY = "coverage_no_inventory"
    NO_SIZE = "coverage_no_size"
    ENOUGH = "coverage_enough"


WORDS: Mapping[str, str] = {
    Code.LOW: (
        "{unseen.plain} of {expected} are unseen (coverage {coverage}, at least {bound}): {unseen.cause}"
    ),
    Code.NO_INVENTORY: "the orchestrator did not say what exists",
    Code.NO_SIZE: "its size is unknown: the orchestrator did not say what exists, nor did it before",
    Code.ENOUGH: "{coverage} of it is seen",
}


def assess(view: PoolView) -> Step:
    """Block shrinking below the policy's coverage, and while the inventory is missing."""
    inputs = _inputs(view)
    if view.unsized:
        return Step(ID, Code.NO_SIZE, Vote.BLOCK, inputs)
    if view.blind:
        return Step(ID, Code.LOW, Vote.BLOCK, inputs)
    if not view.inventory_known:
        return Step(ID, Code.NO_INVENTORY, Vote.BLOCK, inputs)
    return Step(ID, Code.ENOUGH, Vote.SHRINK_OK, inputs)


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """The same for both cycles."""
    return assess(view.pool)


def _inputs(view: PoolView) -> tuple[Input, ...]:
    cover = view.coverage
    return (
        figure("coverage", cover.share, "ratio"),
        figure("bound", view.policy.evidence.coverage, "ratio"),
        Input("unseen", float(cover.expected - cover.seen), "instances", cause=_main_cause(view)),
        figure("expected", cover.expected, "instances"),
    )


def _main_cause(view: PoolView) -> Cause:
    """The commonest cause among the unseen; the first by code where several tie."""
    column = view.column(Signal.RUNNING)
    codes = column.cause[view.gauge_rows & ~column.ok]
    return CAUSES[int(np.argmax(np.bincount(codes)))] if codes.size else Cause.NONE


RULE = Rule(ID, Code, WORDS, propose)
