"""Replay: the same inputs give the same plan, other inputs another one, and the difference is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis

from controlplane.domain.decide import decide
from controlplane.domain.ids import CycleId, CycleKind, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import ActionKind, Plan
from controlplane.domain.readings import Column, Signal
from controlplane.domain.state import PoolState, State
from controlplane.loop.replay import compare, recompute
from controlplane.ports import Frame
from tests.builders import NO_FORECAST, gateway, instances, policies, pool_policy, server, steady_pool
from tests.domain.strategies import observations

CYCLE = CycleId("demo", CycleKind.WEIGHTS, 1)
CHAT, VISION = PoolName("chat-8b"), PoolName("vision")
MEMBERS = instances(4)


def seen(speed: float = 0.5) -> Observation:
    """Four instances of which the last is slow."""
    return steady_pool(
        running=20.0,
        speed=[1.0, 1.0, 1.0, speed],
        kind=CycleKind.WEIGHTS,
        members=MEMBERS,
        gateways={"edge": gateway([server(each) for each in MEMBERS])},
    )


def frame(observation: Observation) -> Frame:
    return Frame(observation, policies(pool_policy()), State(), NO_FORECAST)


def weight_of_the_slow_one(plan: Plan) -> int:
    (level,) = [
        each.level
        for each in plan.decisions[CHAT].actions
        if each.kind is ActionKind.SET_WEIGHT and each.instance == MEMBERS[3].instance_id
    ]
    return level


@hypothesis(max_examples=30)
@given(observation=observations())
def test_what_was_decided_is_decided_again(observation: Observation) -> None:
    given_ = frame(observation)
    stored = decide(given_.observation, given_.policies, given_.state, given_.forecast)
    assert compare(CYCLE, recompute(given_), stored).identical


def test_a_decisive_input_that_is_changed_changes_the_result_and_is_named() -> None:
    stored = recompute(frame(seen(0.5)))
    observation = seen(0.5)
    times = observation.signals[Signal.STEP_TIME]
    healed = Column(
        np.where(np.arange(4) == 3, times.value[0], times.value), times.ok, times.cause, times.sampled_at
    )
    other = replace(observation, signals={**observation.signals, Signal.STEP_TIME: healed})
    assert weight_of_the_slow_one(stored[0]) < 100
    replayed = compare(CYCLE, recompute(frame(other)), stored)
    assert not replayed.identical
    assert any(gap.path.startswith("plan.decisions.chat-8b.") for gap in replayed.differences)
    assert {gap.pool for gap in replayed.differences} == {"chat-8b"}


def test_a_single_level_that_differs_is_named_with_both_values() -> None:
    plan, state = recompute(frame(seen()))
    decision = plan.decisions[CHAT]
    first = decision.actions[0]
    forged = replace(decision, actions=(replace(first, level=first.level + 1), *decision.actions[1:]))
    (gap,) = compare(CYCLE, (plan, state), (replace(plan, decisions={CHAT: forged}), state)).differences
    assert (gap.path, gap.pool) == ("plan.decisions.chat-8b.actions[0].level", "chat-8b")
    assert (gap.stored, gap.recomputed) == (str(first.level + 1), str(first.level))


def test_a_memory_that_differs_is_a_difference_too() -> None:
    plan, state = recompute(frame(seen()))
    other = State({CHAT: replace(state.pools[CHAT], blind=7)})
    (gap,) = compare(CYCLE, (plan, state), (plan, other)).differences
    assert (gap.path, gap.stored, gap.recomputed) == ("state.pools.chat-8b.blind", "7", "0")


@pytest.mark.parametrize(("factor", "identical"), [(1 + 1e-9, True), (1 - 1e-9, True), (1 + 1e-4, False)])
def test_numbers_are_equal_to_six_digits_since_processors_differ_in_the_last(
    factor: float, identical: bool
) -> None:
    state = State({CHAT: PoolState(last_grow_at=1234.5 * factor)})
    stored = State({CHAT: PoolState(last_grow_at=1234.5)})
    plan, _ = recompute(frame(seen()))
    assert compare(CYCLE, (plan, state), (plan, stored)).identical is identical


def test_a_pool_that_is_only_on_one_side_is_a_difference() -> None:
    plan, state = recompute(frame(seen()))
    without = replace(plan, decisions={})
    (gap,) = compare(CYCLE, (plan, state), (without, state)).differences
    assert (gap.path, gap.stored) == ("plan.decisions.chat-8b", "null")


def test_one_pool_can_be_looked_at_alone() -> None:
    plan, state = recompute(frame(seen()))
    other = State({**state.pools, VISION: PoolState(blind=1)})
    replayed = compare(CYCLE, (plan, state), (plan, other))
    assert not replayed.of(VISION).identical
    assert replayed.of(CHAT).identical


def test_what_concerns_the_whole_plan_concerns_every_pool() -> None:
    plan, state = recompute(frame(seen()))
    elsewhere = replace(plan, policy=replace(plan.policy, commit="abc"))
    replayed = compare(CYCLE, (plan, state), (elsewhere, state))
    assert [gap.path for gap in replayed.of(CHAT).differences] == ["plan.policy.commit"]
