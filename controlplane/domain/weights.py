"""A weights cycle for one pool: where the next request should rather go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controlplane.domain import routing
from controlplane.domain.capacity import imbalance_input
from controlplane.domain.explanation import Explanation, Input, Step, Vote
from controlplane.domain.ids import InstanceId
from controlplane.domain.imbalance import of_busyness
from controlplane.domain.load import speeds
from controlplane.domain.memory import seen_again
from controlplane.domain.numbers import significant
from controlplane.domain.plan import Action, Decision, Outcome
from controlplane.domain.policy import Routing
from controlplane.domain.profile import largest_concurrency
from controlplane.domain.pushes import Intent, pool_limit, pushes, weights_changed
from controlplane.domain.readings import CAUSES, Bools, Floats, Signal
from controlplane.domain.rules import coverage, human_hold
from controlplane.domain.rules.weights import ALL, WeightView, pinned, speed
from controlplane.domain.served import counted, supported
from controlplane.domain.state import PoolState, Served
from controlplane.domain.trust import ANSWERED
from controlplane.domain.view import PoolView

_ANSWERED_CODES = [CAUSES.index(cause) for cause in ANSWERED]


@dataclass(frozen=True, slots=True)
class _Shaped:
    """Intended weights (m), the relative speeds to be remembered (m), and the steps."""

    weights: Floats
    speed: Floats
    steps: tuple[Step, ...]


def decide_weights(pool: PoolView) -> tuple[Decision, PoolState]:
    """The levels that the pool's gateways still lack, and why."""
    if pool.policy.routing is Routing.EXTERNAL:
        return _external(pool), seen_again(pool)
    served = counted(pool)
    view = weight_view(pool, served)
    shaped = _shape(view)
    members = tuple(pool.instances[row].instance_id for row in view.rows.tolist())
    limit = pool_limit(pool, _concurrency(pool))
    changed = weights_changed(members, view.last, shaped.weights)
    actions = pushes(pool, Intent(members, shaped.weights, changed, limit, _ramp(view)))
    decision = _decision(pool, shaped.steps, actions, moved=bool(changed))
    return decision, _remember(pool, members, shaped, served, limit)


def weight_view(pool: PoolView, served: dict[InstanceId, Served]) -> WeightView:
    """The members that take traffic, with their speeds and last weights."""
    rows = np.flatnonzero(pool.traffic_rows)
    ids = [pool.instances[row].instance_id for row in rows.tolist()]
    absolute, believed = speeds(pool)
    fallback = np.array([pool.state.speeds.get(each, 1.0) for each in ids])
    return WeightView(
        pool=pool,
        rows=rows,
        last=np.array([pool.state.weights.get(each, 1.0) for each in ids]),
        speed=routing.relative(absolute[rows], believed[rows], fallback),
        believed=believed[rows],
        supported=supported(pool, served)[rows],
        unseen=_unseen(pool)[rows],
    )


def _ramp(view: WeightView) -> Floats:
    """Of the members; one of which it is not known when it came up has been there for long."""
    ready = [view.pool.instances[row].ready_at for row in view.rows.tolist()]
    since = [np.inf if at is None else view.pool.now - at for at in ready]
    return routing.ramp(np.array(since, dtype=np.float64))


def _unseen(pool: PoolView) -> Bools:
    """No running count, or no step time for another cause than having had nothing to do. A
    starting instance has no window yet: that is no reason to mistrust it."""
    running, step = pool.column(Signal.RUNNING), pool.column(Signal.STEP_TIME)
    silent = ~step.ok & ~np.isin(step.cause, _ANSWERED_CODES) & pool.rate_rows
    return ~running.ok | silent


def _shape(view: WeightView) -> _Shaped:
    """Rules in order; a held pool keeps its last weights whatever they say."""
    steps = [coverage.assess(view.pool), human_hold.assess(view.pool)]
    weights = view.last
    for rule in ALL:
        weights, step = rule.shape(view, weights)
        steps.append(step)
    held = any(step.vote is Vote.BLOCK for step in steps)
    weights, pin = pinned.shape(view, view.last if held else _rounded(weights))
    steps.append(pin)
    steps.append(Step("imbalance", "imbalance_shown", Vote.ABSTAIN, _imbalance(view.pool)))
    return _Shaped(weights, _rounded(view.speed), tuple(steps))


def _imbalance(pool: PoolView) -> tuple[Input, ...]:
    return (imbalance_input("imbalance_busyness", of_busyness(pool)),)


def _rounded(values: Floats) -> Floats:
    return np.array([significant(value) for value in values.tolist()])


def _concurrency(pool: PoolView) -> int:
    slo = pool.policy.slo
    return largest_concurrency(pool.profile, pool.mix.mix, slo.tpot_p95_s * 1e3, slo.ttft_p95_s * 1e3)


def _decision(pool: PoolView, steps: Sequence[Step], actions: tuple[Action, ...], *, moved: bool) -> Decision:
    blocker = next((step for step in reversed(steps) if step.vote is Vote.BLOCK), None)
    by_rule = {step.rule: step for step in steps}
    pin = by_rule[pinned.ID]
    step = pin if moved and pin.code == pinned.Code.PINNED else blocker or by_rule[speed.ID]
    rule, code = step.rule, step.code
    if actions and not blocker and not moved:
        rule, code = "pushes", actions[0].code
    outcome = Outcome.CHANGE if actions else (Outcome.HELD if blocker else Outcome.NOTHING_TO_DO)
    explanation = Explanation(tuple(steps), rule, code, None, None)
    return Decision(pool.policy.pool, pool.policy.weights_mode, outcome, actions, explanation)


def _external(pool: PoolView) -> Decision:
    step = Step("routing", "routing_external", Vote.ABSTAIN)
    explanation = Explanation((step,), step.rule, step.code, None, None)
    return Decision(pool.policy.pool, pool.policy.weights_mode, Outcome.NOTHING_TO_DO, (), explanation)


def _remember(
    pool: PoolView,
    members: Sequence[InstanceId],
    shaped: _Shaped,
    served: dict[InstanceId, Served],
    limit: int,
) -> PoolState:
    """Weights and speeds of whoever still exists: one that drains may come back."""
    exists = {each.instance_id for each in pool.instances}
    weights = {each: weight for each, weight in pool.state.weights.items() if each in exists}
    speeds_kept = {each: value for each, value in pool.state.speeds.items() if each in exists}
    return replace(
        seen_again(pool),
        weights=weights | dict(zip(members, shaped.weights.tolist(), strict=True)),
        speeds=speeds_kept | dict(zip(members, shaped.speed.tolist(), strict=True)),
        served=served,
        limit=limit,
    )
