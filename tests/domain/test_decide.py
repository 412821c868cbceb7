"""The decision as a whole: pure, the same on every machine, and pool by pool."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import weights
from controlplane.domain.decide import decide
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import ActionKind, Outcome, Plan
from controlplane.domain.policy import CapacityPolicy, Policies
from controlplane.domain.state import PoolState, State
from controlplane.domain.view import PoolView
from controlplane.forms import content_hash, from_json, to_json
from tests.builders import MIX, NO_FORECAST, gateway, instances, policies, pool_policy, server, steady_pool
from tests.domain.stories import levels
from tests.domain.strategies import SETTLED, observations

CHAT, VISION = PoolName("chat-8b"), PoolName("vision")


def two_pools(kind: CycleKind = CycleKind.CAPACITY) -> Observation:
    """`chat-8b` and `vision`, four instances each, the last of each slow, behind one gateway."""
    members = (*instances(4), *instances(4, "vision"))
    both = steady_pool(members=members, running=[60.0] * 8, speed=[1.0, 1.0, 1.0, 0.4] * 2, kind=kind)
    backends = tuple(
        gateway([server(each) for each in instances(4, pool)], pool).backends[0]
        for pool in ("chat-8b", "vision")
    )
    view = replace(gateway([]), backends=backends)
    return replace(both, pools={CHAT: both.pools[CHAT], VISION: both.pools[CHAT]}, gateways={"edge": view})


def state() -> State:
    return State({CHAT: SETTLED, VISION: SETTLED})


@given(observations())
def test_the_same_input_gives_the_same_bytes(built: Observation) -> None:
    first, after = decide(built, policies(), state(), NO_FORECAST)
    again, after_again = decide(
        from_json(Observation, to_json(built)), from_json(Policies, to_json(policies())), state(), NO_FORECAST
    )
    assert first.decisions[CHAT].outcome is not Outcome.FAILED
    assert to_json(first) == to_json(again)
    assert content_hash(after) == content_hash(after_again)


@given(observations(), st.randoms(use_true_random=False))
def test_the_order_of_instances_makes_no_difference(built: Observation, chance: random.Random) -> None:
    order = list(range(len(built.instances)))
    chance.shuffle(order)
    signals = {
        signal: type(column).of([column[row] for row in order]) for signal, column in built.signals.items()
    }
    shuffled = replace(built, instances=tuple(built.instances[row] for row in order), signals=signals)
    assert decide(shuffled, policies(), state(), NO_FORECAST) == decide(
        built, policies(), state(), NO_FORECAST
    )


def test_ties_go_to_the_smaller_id_whatever_the_order() -> None:
    """Two weights of 0.75 x 0.75 share one whole level: which of them gets it must not depend on order."""
    members = instances(4)
    speeds = [0.5, 0.5, 1.0, 1.0]
    remembered = State(
        {CHAT: replace(SETTLED, mix=MIX, weights={each.instance_id: 0.75 for each in members[:2]})}
    )
    view = {"edge": gateway([server(each) for each in members])}

    def weights_for(order: list[int]) -> dict[str, int]:
        built = steady_pool(
            members=[members[row] for row in order],
            speed=[speeds[row] for row in order],
            kind=CycleKind.WEIGHTS,
            gateways=view,
        )
        plan, _ = decide(built, policies(), remembered, NO_FORECAST)
        return levels(plan.decisions[CHAT], ActionKind.SET_WEIGHT)

    forward = weights_for([0, 1, 2, 3])
    assert forward["chat-8b-01"] != forward["chat-8b-02"]
    assert weights_for([3, 1, 0, 2]) == forward


@pytest.mark.parametrize("kind", CycleKind)
def test_a_bad_policy_in_one_pool_changes_no_byte_of_another(kind: CycleKind) -> None:
    good = policies(pool_policy("chat-8b"), pool_policy("vision"))
    bad = policies(pool_policy("chat-8b", profile="no-such"), pool_policy("vision"))
    _same_for_vision(
        two_pools(kind), good, bad, "failure_policy", "profile 'no-such' is not among ['h100-8b']"
    )


@pytest.mark.parametrize("kind", CycleKind)
def test_a_bad_bound_in_one_pool_is_said_and_changes_no_byte_of_another(kind: CycleKind) -> None:
    crossed = CapacityPolicy(minimum=9, maximum=3)
    good = policies(pool_policy("chat-8b"), pool_policy("vision"))
    bad = policies(pool_policy("chat-8b", capacity=crossed), pool_policy("vision"))
    _same_for_vision(two_pools(kind), good, bad, "failure_policy", "minimum 9 is above maximum 3")


def test_an_exception_in_one_pool_changes_no_byte_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    good = policies(pool_policy("chat-8b"), pool_policy("vision"))
    whole, after = decide(two_pools(CycleKind.WEIGHTS), good, state(), NO_FORECAST)
    real = weights.weight_view

    def broken(pool: PoolView, served: object) -> object:
        if pool.policy.pool == CHAT:
            raise ZeroDivisionError("a rule's mistake")
        return real(pool, served)  # type: ignore[arg-type]

    monkeypatch.setattr(weights, "weight_view", broken)
    hurt, after_hurt = decide(two_pools(CycleKind.WEIGHTS), good, state(), NO_FORECAST)
    _compare(whole, after, hurt, after_hurt)
    failed = hurt.decisions[CHAT]
    assert failed.outcome is Outcome.FAILED
    assert failed.actions == ()
    assert failed.explanation.steps[0].detail == "ZeroDivisionError: a rule's mistake"


def test_state_of_a_failed_pool_that_had_none_stays_absent() -> None:
    bad = policies(pool_policy("chat-8b", profile="no-such"))
    _, after = decide(two_pools(), bad, State(), NO_FORECAST)
    assert after == State()


def test_memory_of_a_pool_whose_policy_is_gone_is_kept() -> None:
    remembered = State({VISION: PoolState(last_target=7)})
    _, after = decide(steady_pool(2), policies(), remembered, NO_FORECAST)
    assert after.pools[VISION] == PoolState(last_target=7)


def test_an_instance_without_a_policy_gets_no_decision() -> None:
    plan, _ = decide(two_pools(), policies(), State(), NO_FORECAST)
    assert set(plan.decisions) == {CHAT}


def test_both_kinds_share_one_memory_and_do_not_erase_each_other() -> None:
    _, after = decide(two_pools(CycleKind.WEIGHTS), policies(), state(), NO_FORECAST)
    weighted = after.pools[CHAT].weights
    assert weighted
    _, after = decide(two_pools(CycleKind.CAPACITY), policies(), after, NO_FORECAST)
    assert after.pools[CHAT].weights == weighted
    assert len(after.pools[CHAT].wants) == 3
    _, after = decide(two_pools(CycleKind.WEIGHTS), policies(), after, NO_FORECAST)
    assert len(after.pools[CHAT].wants) == 3


def _same_for_vision(built: Observation, good: Policies, bad: Policies, code: str, reason: str) -> None:
    whole, after = decide(built, good, state(), NO_FORECAST)
    hurt, after_hurt = decide(built, bad, state(), NO_FORECAST)
    _compare(whole, after, hurt, after_hurt)
    failed = hurt.decisions[CHAT]
    assert (failed.outcome, failed.explanation.code, failed.actions) == (Outcome.FAILED, code, ())
    assert reason in failed.explanation.steps[0].detail


def _compare(whole: Plan, after: State, hurt: Plan, after_hurt: State) -> None:
    assert whole.decisions[CHAT].outcome is not Outcome.FAILED
    assert to_json(whole.decisions[VISION]) == to_json(hurt.decisions[VISION])
    assert after.pools[VISION] == after_hurt.pools[VISION]
    assert after_hurt.pools[CHAT] == state().pools[CHAT]
