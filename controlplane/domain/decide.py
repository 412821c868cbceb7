"""The decision: a pure function of what was seen, asked for, remembered and expected.

No clock, no IO, no randomness, no global state and no time limit: the same input gives the same
plan on any machine. Pools are fault domains: whatever breaks in one changes nothing in another.
"""

from __future__ import annotations

import numpy as np

from controlplane.domain.capacity import decide_capacity
from controlplane.domain.explanation import Explanation, Step, Vote
from controlplane.domain.forecast import Forecast, PoolForecast
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Decision, Outcome, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.state import PoolState, State
from controlplane.domain.view import BrokenPolicy, PoolView, group_rows, view_of
from controlplane.domain.weights import decide_weights

_NO_ROWS = np.zeros(0, dtype=np.intp)


def decide(
    observation: Observation, policies: Policies, state: State, forecast: Forecast
) -> tuple[Plan, State]:
    """One decision for every pool that has a policy, and the next memory.

    Memory of a pool without a policy is kept as it is: the policy may come back.
    """
    rows = group_rows(observation.instances)
    decisions: dict[PoolName, Decision] = {}
    memory = dict(state.pools)
    for pool in sorted(policies.pools):
        before = state.pools.get(pool, PoolState())
        try:
            view = view_of(observation, policies, pool, before, rows.get(pool, _NO_ROWS))
            decisions[pool], memory[pool] = _decide_pool(view, forecast.pools.get(pool))
        except Exception as error:  # noqa: BLE001 - one pool's fault must never reach another pool
            decisions[pool] = _failed(policies, pool, observation.kind, error)
    return Plan(observation.kind, policies.version, decisions), State(memory)


def _decide_pool(view: PoolView, forecast: PoolForecast | None) -> tuple[Decision, PoolState]:
    if view.kind is CycleKind.CAPACITY:
        return decide_capacity(view, forecast)
    return decide_weights(view)


def _failed(policies: Policies, pool: PoolName, kind: CycleKind, error: Exception) -> Decision:
    """Nothing is done for the pool; the reason is data like any other."""
    code = "failure_policy" if isinstance(error, BrokenPolicy) else "failure_rule"
    step = Step("failure", code, Vote.BLOCK, detail=f"{type(error).__name__}: {error}")
    explanation = Explanation((step,), step.rule, step.code, None, None)
    return Decision(pool, policies.pools[pool].mode(kind), Outcome.FAILED, (), explanation)
