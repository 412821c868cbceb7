"""Pins: a person's number stands above every rule but bounds and a hold, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.observation import Effect, Hold, Observation
from controlplane.domain.plan import ActionKind, Outcome
from controlplane.domain.policy import CapacityPolicy
from controlplane.domain.readings import Cause, Missing
from controlplane.domain.words import sentence
from tests.builders import NOW, gateway, instances, observation, policies, pool_policy, server, steady_pool
from tests.domain.stories import POOL, after, decided, levels, step_of

ONE = InstanceId("demo/chat-8b-01@s9k2x1")
HOLD = Hold(POOL, "ben", "a release", NOW - 5.0)


def pin(level: int, **changes: object) -> Hold:
    base = Hold(POOL, "ann", "a launch", NOW - 10.0, effect=Effect.PIN_INSTANCES, level=level)
    return replace(base, **changes)  # type: ignore[arg-type]


def weight_pin(percent: int) -> Hold:
    return Hold(POOL, "ann", "a new card", NOW - 10.0, None, Effect.PIN_WEIGHT, ONE, percent)


def test_a_pinned_size_is_taken_whatever_the_load_says_and_both_ways() -> None:
    busy, quiet = steady_pool(6, 60.0), steady_pool(6, 2.0)
    assert after(busy) > 6
    assert after(replace(busy, holds=(pin(5),))) == 5
    assert after(replace(quiet, holds=(pin(9),))) == 9


def test_a_decision_by_a_pin_names_author_and_reason() -> None:
    decision, _ = decided(steady_pool(6, 45.0, holds=[pin(9)]))
    assert (decision.outcome, decision.explanation.code) == (Outcome.CHANGE, "pinned_by_person")
    assert "ann pins it at 9: a launch" in sentence(decision)


def test_a_pin_ends_at_its_instant_and_not_before() -> None:
    for left_s, expected in ((0.001, 9), (0.0, 6)):
        seen = steady_pool(6, 45.0, holds=[pin(9, until=NOW + left_s)])
        assert after(seen) == expected


def test_the_newest_pin_counts() -> None:
    older, newer = pin(9, since=NOW - 20.0), pin(7)
    for words in ([older, newer], [newer, older]):
        assert after(steady_pool(6, 45.0, holds=words)) == 7


def test_a_pin_of_another_pool_is_none() -> None:
    assert after(steady_pool(6, 45.0, holds=[pin(9, pool="vision")])) == 6


def test_a_hold_stands_above_a_pin_and_bounds_above_both_wishes() -> None:
    rules = policies(pool_policy(capacity=CapacityPolicy(minimum=4, maximum=8)))
    assert after(steady_pool(6, 45.0, holds=[pin(9)]), rules=rules) == 8
    assert after(steady_pool(6, 45.0, holds=[pin(2)]), rules=rules) == 4
    assert after(steady_pool(6, 45.0, holds=[pin(8), HOLD]), rules=rules) == 6


def test_what_cannot_be_seen_grows_to_a_pin_and_does_not_shrink_to_it() -> None:
    """The instances that would leave may be busy: nobody would know."""
    blind = observation(instances(6), {}, {})
    decision, _ = decided(replace(blind, holds=(pin(3),)))
    assert decision.explanation.after == 6.0
    assert step_of(decision, "pin").code == "pinned_unseen"
    assert after(replace(blind, holds=(pin(8),))) == 8


@given(level=st.integers(0, 60), size=st.integers(1, 30), running=st.floats(0.0, 64.0))
def test_a_pinned_size_is_never_outside_the_policys_bounds(level: int, size: int, running: float) -> None:
    found = after(steady_pool(size, running, holds=[pin(level)]))
    assert 2 <= found <= max(40, size)


def routed(*holds: Hold, running: float | Missing = 20.0) -> Observation:
    members = instances(4)
    seen = steady_pool(
        4,
        20.0,
        kind=CycleKind.WEIGHTS,
        gateways={"edge": gateway([server(each) for each in members])},
        holds=holds,
    )
    if isinstance(running, Missing):
        blind = observation(members, {}, {}, kind=CycleKind.WEIGHTS, gateways=seen.gateways)
        return replace(blind, holds=seen.holds)
    return seen


@pytest.mark.parametrize("running", [20.0, Missing(Cause.QUERY_FAILED)])
def test_a_pinned_weight_is_set_at_once_also_while_nothing_is_seen(running: float | Missing) -> None:
    before, _ = decided(routed(running=running))
    pinned, memory = decided(routed(weight_pin(50), running=running))
    assert ONE.partition("/")[2] not in levels(before, ActionKind.SET_WEIGHT)
    assert levels(pinned, ActionKind.SET_WEIGHT) == {"chat-8b-01": 50}
    assert pinned.explanation.code == "weight_pinned"
    assert memory.weights[ONE] == 0.5


def test_a_pinned_weight_waits_while_the_pool_is_held() -> None:
    held, _ = decided(routed(weight_pin(50), HOLD))
    assert levels(held, ActionKind.SET_WEIGHT) == {}
    assert held.outcome is Outcome.HELD
