"""The decision: a pure function of what was seen, asked for, remembered and expected.

No clock, no IO, no randomness, no global state and no time limit: the same input gives the same
plan on any machine. Pools are fault domains: whatever breaks in one changes nothing in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from controlplane.domain import loans
from controlplane.domain.capacity import decide_capacity
from controlplane.domain.explanation import Explanation, Step, Vote
from controlplane.domain.fleet import OFF, Inventory, Life
from controlplane.domain.forecast import Forecast, PoolForecast
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.moves.join import with_moves
from controlplane.domain.moves.site import site_of
from controlplane.domain.moves.step import Moved, Wish, move_fleet
from controlplane.domain.observation import Observation, Reach
from controlplane.domain.plan import Decision, Outcome, Plan
from controlplane.domain.policy import Mode, Policies
from controlplane.domain.state import Move, PoolState, State
from controlplane.domain.view import BrokenPolicy, PoolView, group_rows, view_of
from controlplane.domain.weights import decide_weights

_NO_ROWS = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class _Decided:
    """Every pool's own decision and next memory; `views` of those whose decision did not fail."""

    decisions: dict[PoolName, Decision]
    memory: dict[PoolName, PoolState]
    views: dict[PoolName, PoolView]


def decide(
    observation: Observation, policies: Policies, state: State, forecast: Forecast
) -> tuple[Plan, State]:
    """One decision for every pool that has a policy, and the next memory.

    Memory of a pool without a policy is kept as it is: the policy may come back.
    """
    decided = _pool_by_pool(observation, policies, state, forecast)
    moved = _moved(observation, policies, state, decided)
    decisions = {pool: with_moves(decision, moved) for pool, decision in decided.decisions.items()}
    for pool, error in moved.failures.items():
        decisions[pool] = _failed(policies, pool, observation.kind, error)
    plan = Plan(observation.kind, policies.version, decisions, _loans(observation, policies, moved.moves))
    return plan, State(decided.memory, moved.moves, moved.shunned)


def _pool_by_pool(observation: Observation, policies: Policies, state: State, forecast: Forecast) -> _Decided:
    rows = group_rows(observation.instances)
    decided = _Decided({}, dict(state.pools), {})
    for pool in sorted(policies.pools):
        try:
            view = view_of(observation, policies, pool, state, rows.get(pool, _NO_ROWS))
            decision, memory = _decide_pool(view, forecast.pools.get(pool))
            decided.decisions[pool], decided.memory[pool], decided.views[pool] = decision, memory, view
        except Exception as error:  # noqa: BLE001 - one pool's fault must never reach another pool
            decided.decisions[pool] = _failed(policies, pool, observation.kind, error)
    return decided


def _decide_pool(view: PoolView, forecast: PoolForecast | None) -> tuple[Decision, PoolState]:
    if view.kind is CycleKind.CAPACITY:
        return decide_capacity(view, forecast)
    return decide_weights(view)


def _moved(observation: Observation, policies: Policies, state: State, decided: _Decided) -> Moved:
    """Capacity moves only where each instance can be asked for, and it is known what there is."""
    if observation.reach is not Reach.INSTANCES or not isinstance(observation.inventory, Inventory):
        return Moved(state.moves, state.shunned)
    site = site_of(observation, observation.inventory, policies, decided.views, state.shunned)
    wishes = dict(_wishes(observation.kind, decided.decisions))
    return move_fleet(site, state.moves, wishes)


def _wishes(kind: CycleKind, decisions: Mapping[PoolName, Decision]) -> Iterator[tuple[PoolName, Wish]]:
    """The numbers that were decided for pools that may move by themselves."""
    for pool, each in decisions.items():
        before, after = each.explanation.before, each.explanation.after
        moves = kind is CycleKind.CAPACITY and each.mode is Mode.AUTO and before is not None
        if moves and after is not None and after != before:
            yield pool, Wish(int(before or 0), int(after))


def _loans(observation: Observation, policies: Policies, moves: tuple[Move, ...]) -> tuple[loans.Entry, ...]:
    """What the ledger lacks. An old inventory proves nothing: neither a return nor a loan; and where
    no instance can be moved, nothing is ours to lend."""
    if observation.reach is not Reach.INSTANCES or not isinstance(observation.inventory, Inventory):
        return ()
    up = {each.instance_id for each in observation.inventory.instances if each.phase not in OFF}
    coming = [
        loans.Coming(each.instance, each.pool, each.place.node, len(each.place.gpus))
        for each in moves
        if each.to is Life.AWAKE and each.instance not in up
    ]
    return loans.entries(observation.inventory, coming, observation.loans, policies)


def _failed(policies: Policies, pool: PoolName, kind: CycleKind, error: Exception) -> Decision:
    """Nothing is done for the pool; the reason is data like any other."""
    code = "failure_policy" if isinstance(error, BrokenPolicy) else "failure_rule"
    step = Step("failure", code, Vote.BLOCK, detail=f"{type(error).__name__}: {error}")
    explanation = Explanation((step,), step.rule, step.code, None, None)
    return Decision(pool, policies.pools[pool].mode(kind), Outcome.FAILED, (), explanation)
