"""Offered load: how many instances the present traffic needs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Input, Proposal, Step, Verb, Vote
from controlplane.domain.load import present_need
from controlplane.domain.readings import PoolSignal, Signal
from controlplane.domain.rules.base import CapacityView, Rule, figure, seen

ID = "offered_load"

_CAME = (PoolSignal.ARRIVALS, PoolSignal.ARRIVALS_NOW)


class Code(StrEnum):
    """Why."""

    ABOVE = "load_above"
    BELOW = "load_below"
    WITHIN = "load_within"
    UNKNOWN = "load_unknown"


WORDS: Mapping[str, str] = {
    Code.ABOVE: "its load is {load} and {before.plain} carry {carried.plain}",
    Code.BELOW: "its load is {load} and {before.plain} carry {carried.plain}",
    Code.WITHIN: "its load is {load} and {before.plain} carry {carried.plain}, within the band",
    Code.UNKNOWN: "its load can't be told ({missing.plain} of 3 estimates lack signals), only {load} is sure",
}


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Grow by what is proven, shrink only by what it could be at most."""
    capacity, load = view.pool.policy.capacity, view.load
    need = present_need(load.lower, capacity.target_utilisation)
    vote, code = _opinion(view)
    if need < view.before:
        most = view.before if load.upper is None else present_need(load.upper, capacity.target_utilisation)
        need = max(need, min(view.before, most))
    return Step(ID, code, vote, _inputs(view), (Proposal(Verb.SET, float(need)),))


def _opinion(view: CapacityView) -> tuple[Vote, Code]:
    capacity, load, before = view.pool.policy.capacity, view.load, view.before
    if load.lower > capacity.grow_above * before:
        return Vote.GROW, Code.ABOVE
    if load.upper is None:
        return Vote.BLOCK, Code.UNKNOWN
    if before > 0 and load.upper <= capacity.shrink_below * (before - 1):
        return Vote.SHRINK_OK, Code.BELOW
    return Vote.ABSTAIN, Code.WITHIN


def _inputs(view: CapacityView) -> tuple[Input, ...]:
    load, pool, capacity = view.load, view.pool, view.pool.policy.capacity
    estimates = (load.leaving, load.arriving, load.in_service)
    mix = pool.mix
    return (
        figure("load", load.lower, "instances", age_s=_age(view)),
        figure("load_at_most", load.upper, "instances"),
        figure("sustained", load.sustained, "instances"),
        figure("leaving", load.leaving.lower, "instances"),
        figure("arriving", load.arriving.lower, "instances"),
        figure("in_service", load.in_service.lower, "instances"),
        *(seen(each, pool.reading(each), pool.now) for each in _CAME),
        figure("missing", sum(each.upper is None for each in estimates), "estimates"),
        figure("before", view.before, "instances"),
        figure("carried", capacity.target_utilisation * view.before, "instances"),
        figure("concurrency", load.concurrency, "requests"),
        figure("speed", load.speed, "ratio"),
        figure(f"output_mean_{mix.source}", mix.mix.output_mean, "tokens"),
    )


def _age(view: CapacityView) -> float | None:
    """Age of the oldest running count used: the load is no fresher than that."""
    column = view.pool.column(Signal.RUNNING)
    known = column.sampled_at[column.ok & view.pool.traffic_rows]
    return view.pool.now - float(np.min(known)) if known.size else None


RULE = Rule(ID, Code, WORDS, propose)
