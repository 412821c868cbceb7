"""Where the next request should rather go: stories and laws of the weights cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.domain.fleet import Phase
from controlplane.domain.gateway import GatewayView, ServerState
from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import Hold, Observation
from controlplane.domain.plan import ActionKind, Decision, Outcome
from controlplane.domain.policy import Routing
from controlplane.domain.readings import Cause, Column, Known, Missing, Signal
from controlplane.domain.state import PoolState, SeenCounters
from tests.builders import (
    MIX,
    NOW,
    Value,
    column,
    gateway,
    instances,
    policies,
    pool_policy,
    server,
    steady_pool,
)
from tests.domain.stories import applied, decided, levels, step_of
from tests.domain.strategies import observations

WEIGHT, LIMIT = ActionKind.SET_WEIGHT, ActionKind.SET_LIMIT
KNOWN_MIX = PoolState(mix=MIX)


def pool(
    speed: float | Sequence[float] = 1.0,
    *,
    count: int = 6,
    running: float | Sequence[float] = 10.0,
    now: float = NOW,
    weights: Sequence[int] | None = None,
    completed: Sequence[int] | None = None,
    changes: dict[Signal, Sequence[Value]] | None = None,
    holds: Sequence[Hold] = (),
) -> Observation:
    members = instances(count)
    shown = weights or [100] * count
    ended = completed or [1000] * count
    view = gateway(
        [server(each, w, completed_total=c) for each, w, c in zip(members, shown, ended, strict=True)]
    )
    return steady_pool(
        count,
        running,
        speed=speed,
        kind=CycleKind.WEIGHTS,
        now=now,
        changes=changes,
        gateways={"edge": view},
        holds=holds,
    )


def settled(built: Observation, cycles: int = 25) -> tuple[Observation, PoolState]:
    """The same readings again and again, each time with the last push in place."""
    state = KNOWN_MIX
    for _ in range(cycles):
        decision, state = decided(built, state)
        built = applied(built, decision)
    return built, state


def shown(built: Observation) -> list[int]:
    view = built.gateways["edge"]
    assert isinstance(view, GatewayView)
    return [each.weight for each in view.backends[0].servers]


def test_instances_that_run_alike_are_left_alone() -> None:
    decision, _ = decided(pool([1.0, 1.05, 0.95, 1.0, 1.02, 0.98]), KNOWN_MIX)
    assert (decision.outcome, decision.actions) == (Outcome.NOTHING_TO_DO, ())


def test_a_throttled_instance_is_found_and_weighted_down_step_by_step() -> None:
    slow = pool([1.0] * 5 + [0.4])
    decision, state = decided(slow, KNOWN_MIX)
    assert levels(decision, WEIGHT) == {"chat-8b-06": 75}
    assert levels(decision, LIMIT) == {"chat-8b-06": 30}
    decision, _ = decided(applied(slow, decision), state)
    assert levels(decision, WEIGHT) == {"chat-8b-06": 56}
    final, _ = settled(slow)
    assert shown(final) == [100] * 5 + [40]


def test_a_recovered_instance_comes_back_to_exactly_equal() -> None:
    _, state = settled(pool([1.0] * 5 + [0.4]))
    assert state.weights[instances(6)[5].instance_id] == pytest.approx(0.4)
    healthy = pool(1.0, weights=[100] * 5 + [40])
    for _ in range(6):
        decision, state = decided(healthy, state)
        healthy = applied(healthy, decision)
    assert shown(healthy) == [100] * 6


def test_once_settled_the_same_readings_push_nothing() -> None:
    final, state = settled(pool([1.0, 0.6, 1.0, 1.3, 1.0, 0.4]))
    decision, again = decided(final, state)
    assert decision.actions == ()
    assert again.weights == state.weights


def test_a_stale_idle_looking_instance_does_not_attract_traffic() -> None:
    """B-013: its last weight stays, however good its old sample looks."""
    members = instances(12)
    fresh = pool([1.0] * 11 + [1.8], count=12)
    lowered = replace(KNOWN_MIX, weights={members[11].instance_id: 0.7})
    old: list[Value] = [*(10.0 for _ in range(11)), Known(0.0, NOW - 600.0)]
    stale = replace(fresh, signals={**fresh.signals, Signal.RUNNING: column(old)})
    assert decided(fresh, lowered)[1].weights[members[11].instance_id] > 0.7
    decision, state = decided(stale, lowered)
    assert state.weights[members[11].instance_id] == 0.7
    assert step_of(decision, "unseen").code == "unseen_kept"


def test_the_only_endpoint_keeps_its_weight_when_it_goes_silent() -> None:
    """B-014: a missing sample is not a saturated one."""
    silent = _all_missing(pool(count=1))
    decision, state = decided(silent, KNOWN_MIX)
    assert decision.actions == ()
    assert decision.outcome is Outcome.HELD
    assert list(state.weights.values()) == [1.0]


def test_with_everything_lost_the_last_good_weights_stay_and_else_equal_ones() -> None:
    """B-014."""
    final, state = settled(pool([1.0] * 5 + [0.4]))
    decision, after = decided(_all_missing(final), state)
    assert (decision.outcome, decision.actions) == (Outcome.HELD, ())
    assert after.weights == state.weights
    unknown = _all_missing(pool(weights=[256, 1, 7, 90, 100, 100]))
    decision, _ = decided(unknown, PoolState())
    assert shown(applied(unknown, decision)) == [100] * 6


def test_a_restarted_gateway_is_repaired_even_while_the_pool_is_held() -> None:
    final, state = settled(pool([1.0] * 5 + [0.4]))
    restarted = _all_missing(replace(final, gateways=pool().gateways))
    decision, after = decided(restarted, state)
    assert levels(decision, WEIGHT) == {"chat-8b-06": 40}
    assert {action.code for action in decision.actions} == {"push_drift", "push_limit"}
    assert decision.explanation.deciding == "coverage"
    assert after.weights == state.weights


def test_a_server_that_the_gateway_lacks_is_added_opened_and_given_both_levels() -> None:
    members = instances(2)
    view = gateway([server(members[0]), server(members[1], state=ServerState.ABSENT)])
    built = replace(pool(count=2), gateways={"edge": view})
    decision, _ = decided(built, KNOWN_MIX)
    assert [(action.kind, action.level, action.seen, action.code) for action in decision.actions] == [
        (ActionKind.ADD, 1, 0, "push_joins"),
        (ActionKind.OPEN, 1, None, "push_returns"),
        (LIMIT, 40, None, "push_returns"),
        (WEIGHT, 100, None, "push_drift"),
    ]
    assert {action.instance for action in decision.actions} == {members[1].instance_id}
    there, _ = decided(applied(built, decision), KNOWN_MIX)
    assert there.actions == ()


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.WARMING, Phase.DRAINING, Phase.ASLEEP, Phase.GONE])
def test_who_takes_no_traffic_is_not_added(phase: Phase) -> None:
    members = instances(2)
    view = gateway([server(members[0]), server(members[1], state=ServerState.ABSENT, in_flight=0)])
    built = replace(pool(count=2), gateways={"edge": view})
    assert decided(built, KNOWN_MIX)[0].actions != ()
    assert decided(_phased(built, 1, phase), KNOWN_MIX)[0].actions == ()


@pytest.mark.parametrize("state", [ServerState.OPEN, ServerState.DOWN])
def test_the_gone_are_closed_then_emptied_then_removed(state: ServerState) -> None:
    """Down is not closed: a gateway's check would let in whoever gets that address next."""
    gone = _phased(_first_server(pool(), state=state, in_flight=3), 0, Phase.GONE)
    decision, memory = decided(gone, KNOWN_MIX)
    assert [action.kind for action in decision.actions] == [ActionKind.CLOSE]
    busy = applied(gone, decision)
    decision, memory = decided(busy, memory)
    assert decision.actions == ()
    idle = _first_server(busy, in_flight=0)
    decision, memory = decided(idle, memory)
    assert [(a.kind, a.level, a.seen, a.code) for a in decision.actions] == [
        (ActionKind.REMOVE, 0, 1, "push_gone")
    ]
    assert decided(applied(idle, decision), memory)[0].actions == ()


def test_nobody_is_removed_on_an_old_inventory() -> None:
    gone = _phased(_first_server(pool(), state=ServerState.CLOSED, in_flight=0), 0, Phase.GONE)
    old = replace(gone, inventory=Missing(Cause.QUERY_TIMEOUT))
    assert decided(old, KNOWN_MIX)[0].actions == ()
    assert len(decided(gone, KNOWN_MIX)[0].actions) == 1


def test_one_that_only_drains_keeps_its_server() -> None:
    drained = _phased(_first_server(pool(), state=ServerState.CLOSED, in_flight=0), 0, Phase.DRAINING)
    assert decided(drained, KNOWN_MIX)[0].actions == ()


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.LOADING, Phase.ASLEEP, Phase.GONE])
def test_what_takes_no_traffic_is_closed_once(phase: Phase) -> None:
    built = _phased(pool(), 0, phase)
    decision, state = decided(built, KNOWN_MIX)
    assert [(a.kind, a.instance) for a in decision.actions] == [
        (ActionKind.CLOSE, instances(6)[0].instance_id)
    ]
    assert decided(applied(built, decision), state)[0].actions == ()


def test_an_unreachable_instance_is_left_to_the_gateways_own_check() -> None:
    assert decided(_phased(pool(), 0, Phase.UNREACHABLE), KNOWN_MIX)[0].actions == ()


def test_nothing_is_closed_on_an_old_inventory() -> None:
    old = replace(_phased(pool(), 0, Phase.DRAINING), inventory=Missing(Cause.QUERY_TIMEOUT))
    assert decided(old, KNOWN_MIX)[0].actions == ()


def test_after_a_return_the_limit_is_sent_again_because_opening_wakes_no_queue() -> None:
    draining = _phased(pool(), 0, Phase.DRAINING)
    decision, state = decided(draining, KNOWN_MIX)
    closed = applied(draining, decision)
    back, _ = decided(_phased(closed, 0, Phase.SERVING), state)
    assert [(action.kind, action.level, action.seen) for action in back.actions] == [
        (ActionKind.OPEN, 1, 0),
        (LIMIT, 40, 40),
    ]


def test_another_router_gets_no_pushes() -> None:
    external = policies(pool_policy(routing=Routing.EXTERNAL))
    decision, _ = decided(pool([1.0] * 5 + [0.4]), KNOWN_MIX, external)
    assert (decision.outcome, decision.actions) == (Outcome.NOTHING_TO_DO, ())


def test_a_persons_hold_freezes_weights() -> None:
    decision, state = decided(pool([1.0] * 5 + [0.4], holds=[Hold(None, "ada", "looking", NOW)]), KNOWN_MIX)
    assert (decision.outcome, decision.actions) == (Outcome.HELD, ())
    assert set(state.weights.values()) == {1.0}


def test_a_frozen_answer_is_called_frozen_and_an_idle_healthy_engine_is_not() -> None:
    """Fresh timestamps on counters that stand still while the gateway sends work."""
    still: dict[Signal, Sequence[Value]] = {
        Signal.PROGRESS: [10.0] * 5 + [0.0],
        Signal.RUNNING: [10.0] * 5 + [0.0],
    }
    first, state = decided(pool(changes=still), KNOWN_MIX)
    assert step_of(first, "unseen").code == "unseen_nobody"
    later, _ = decided(pool(changes=still, now=NOW + 5.0), state)
    assert _cause(later) == "frozen"

    quiet = _without_work(pool(running=[10.0] * 5 + [0.0], changes=still))
    _, calm = decided(quiet, KNOWN_MIX)
    hour, _ = decided(_without_work(pool(running=[10.0] * 5 + [0.0], changes=still, now=NOW + 3600.0)), calm)
    assert step_of(hour, "unseen").code == "unseen_nobody"


def test_work_that_ends_at_the_gateway_while_counters_stand_still_is_evidence_too() -> None:
    still: dict[Signal, Sequence[Value]] = {Signal.PROGRESS: [10.0] * 5 + [0.0]}
    idle = _without_work(pool(running=[10.0] * 5 + [0.0], changes=still))
    _, state = decided(idle, KNOWN_MIX)
    ended = [1000] * 5 + [1007]
    served = _without_work(pool(running=[10.0] * 5 + [0.0], changes=still, now=NOW + 5.0, completed=ended))
    decision, _ = decided(served, state)
    assert _cause(decision) == "frozen"


def test_an_instance_that_has_just_got_work_is_given_time_to_move() -> None:
    waiting = replace(KNOWN_MIX, suspects={instances(6)[5].instance_id: SeenCounters(NOW - 2.9, 1000)})
    still = pool(changes={Signal.PROGRESS: [10.0] * 5 + [0.0]})
    assert step_of(decided(still, waiting)[0], "unseen").code == "unseen_nobody"
    longer = replace(waiting, suspects={instances(6)[5].instance_id: SeenCounters(NOW - 3.0, 1000)})
    assert _cause(decided(still, longer)[0]) == "frozen"


def test_an_engine_that_claims_to_be_fast_gets_no_more_than_the_gateway_saw_done() -> None:
    """Claimed speed 3; the gateway's counts say it does what the others do."""
    claims = [1.0] * 5 + [3.0]
    liar = _claims(claims, rates=[5.0] * 6)
    truthful = _claims(claims, rates=[5.0] * 5 + [15.0])
    one = instances(6)[5].instance_id
    assert liar.weights[one] == pytest.approx(1.0, abs=0.35)
    assert truthful.weights[one] == pytest.approx(2.0)


def test_a_claim_is_not_believed_before_anything_ended() -> None:
    _, state = decided(pool([1.0] * 5 + [3.0]), KNOWN_MIX)
    assert set(state.weights.values()) == {1.0}


def test_an_idle_pool_keeps_the_speeds_it_last_believed() -> None:
    final, state = settled(pool([1.0] * 5 + [0.4]))
    idle = replace(pool(running=0.0), gateways=final.gateways)
    decision, after = decided(idle, state)
    assert decision.actions == ()
    assert after.weights == state.weights


def test_a_limit_follows_the_mix_only_when_it_moves_by_more_than_noise() -> None:
    policy = pool_policy()
    assert decided(pool(), KNOWN_MIX)[1].limit == 40
    assert decided(pool(), replace(KNOWN_MIX, limit=43))[1].limit == 43
    assert decided(pool(), replace(KNOWN_MIX, limit=50))[1].limit == 40
    fixed = policies(replace(policy, limit=7))
    assert set(levels(decided(pool(), KNOWN_MIX, fixed)[0], LIMIT).values()) == {7}


def test_two_gateways_share_a_limit() -> None:
    view = pool().gateways["edge"]
    both = replace(pool(), gateways={"a": view, "b": view})
    decision, _ = decided(both, KNOWN_MIX)
    assert {(a.gateway, a.level) for a in decision.actions if a.kind is LIMIT} == {("a", 20), ("b", 20)}


@given(observations(CycleKind.WEIGHTS))
def test_weights_lie_between_floor_and_ceiling_of_the_median_and_no_push_is_zero(built: Observation) -> None:
    policy = pool_policy().weights
    decision, state = decided(built, KNOWN_MIX)
    members = [each for each in built.instances if each.phase in {Phase.SERVING, Phase.ADMITTED}]
    weights = np.array([state.weights[each.instance_id] for each in members])
    if weights.size:
        assert np.all(weights <= policy.ceiling * np.median(weights) * (1 + 1e-5))
        assert np.all(weights >= policy.floor * np.median(weights) * (1 - 1e-5))
    assert all(action.level >= 1 for action in decision.actions if action.kind in {WEIGHT, LIMIT})


@given(observations(CycleKind.WEIGHTS), st.integers(0, 7))
def test_a_row_that_is_not_seen_is_never_raised(built: Observation, row: int) -> None:
    row %= len(built.instances)
    one = built.instances[row].instance_id
    last = {each.instance_id: 0.8 for each in built.instances}
    signals = {
        signal: readings.without(np.arange(len(readings)) == row, Cause.STALE)
        for signal, readings in built.signals.items()
    }
    _, state = decided(replace(built, signals=signals), replace(KNOWN_MIX, weights=last))
    assert state.weights[one] <= 0.8


@settings(max_examples=12)
@given(observations(CycleKind.WEIGHTS))
def test_applied_and_decided_again_a_plan_comes_to_rest(built: Observation) -> None:
    state = KNOWN_MIX
    for _ in range(40):
        decision, state = decided(built, state)
        built = applied(built, decision)
    assert decided(built, state)[0].actions == ()


def _claims(claims: Sequence[float], rates: Sequence[float]) -> PoolState:
    """Two minutes of claims beside what a gateway counts at ten in flight each."""
    state, built = KNOWN_MIX, pool(claims)
    for cycle in range(25):
        now = NOW + 5.0 * cycle
        ended = [int(1000 + rate * 5.0 * cycle) for rate in rates]
        built = pool(claims, now=now, completed=ended, weights=shown(built))
        decision, state = decided(built, state)
        built = applied(built, decision)
    return state


def _all_missing(built: Observation) -> Observation:
    count = len(built.instances)
    return replace(
        built, signals={signal: Column.missing(count, Cause.QUERY_TIMEOUT) for signal in built.signals}
    )


def _phased(built: Observation, row: int, phase: Phase) -> Observation:
    members = tuple(
        replace(each, phase=phase) if at == row else each for at, each in enumerate(built.instances)
    )
    return replace(built, instances=members)


def _first_server(built: Observation, **changes: object) -> Observation:
    view = built.gateways["edge"]
    assert isinstance(view, GatewayView)
    first, *others = view.backends[0].servers
    servers = (replace(first, **changes), *others)  # type: ignore[arg-type]
    return replace(
        built, gateways={"edge": replace(view, backends=(replace(view.backends[0], servers=servers),))}
    )


def _without_work(built: Observation) -> Observation:
    view = built.gateways["edge"]
    assert isinstance(view, GatewayView)
    servers = view.backends[0].servers
    quiet = (*servers[:-1], replace(servers[-1], in_flight=0))
    return replace(
        built, gateways={"edge": replace(view, backends=(replace(view.backends[0], servers=quiet),))}
    )


def _cause(decision: Decision) -> str:
    """Why the first unseen instance is unseen."""
    unseen = [each for each in step_of(decision, "unseen").inputs if each.name == "running"]
    return unseen[0].cause.value if unseen else "nobody"
