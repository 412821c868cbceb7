"""How many instances: stories, each with the moment before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.decide import decide
from controlplane.domain.explanation import Input, Vote
from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.ids import CycleKind
from controlplane.domain.load import present_need
from controlplane.domain.observation import Hold, Observation
from controlplane.domain.plan import ActionKind, Outcome
from controlplane.domain.policy import CapacityPolicy
from controlplane.domain.readings import Cause, Column, Missing, PoolSignal, Signal
from controlplane.domain.state import PoolState, State, Want
from controlplane.forms import from_json, to_json
from tests.builders import (
    NO_FORECAST,
    NOW,
    Value,
    column,
    instances,
    observation,
    policies,
    pool_policy,
    steady_pool,
)
from tests.domain.stories import POOL, after, decided, step_of
from tests.domain.strategies import FAILURES, POOL_SIGNALS, SETTLED, observations, partly_unseen

STALE = Missing(Cause.STALE)
IDLE = Missing(Cause.NO_TRAFFIC)


def test_a_pool_at_its_target_stays() -> None:
    assert after(steady_pool(6, 45.0)) == 6


def test_a_full_pool_grows_at_once_and_says_by_what_load() -> None:
    decision, _ = decided(steady_pool(6, 62.0))
    assert (decision.outcome, decision.explanation.deciding) == (Outcome.CHANGE, "offered_load")
    (action,) = decision.actions
    assert (action.kind, action.level, action.seen) == (ActionKind.SET_INSTANCES, 8, 6)


def test_a_quiet_pool_shrinks_by_one_step_once_it_has_been_watched_for_long_enough() -> None:
    """B-024: after a restart without memory the rate history is unknown, not zero."""
    quiet = steady_pool(8, 4.0)
    assert after(quiet, PoolState()) == 8
    assert after(quiet, SETTLED) == 6


def test_growth_is_limited_to_one_step() -> None:
    flood = steady_pool(4, 60.0, queue=2000.0)
    assert after(flood) == 8


def test_a_want_of_the_last_minutes_delays_shrinking_and_never_causes_growth() -> None:
    """B-066, B-076: a burst's want holds for three cold starts, which are 270 s here."""
    quiet = steady_pool(8, 4.0)
    burst = replace(SETTLED, wants=(Want(NOW - 400.0, 1), Want(NOW - 269.0, 30), Want(NOW - 15.0, 1)))
    over = replace(SETTLED, wants=(Want(NOW - 271.0, 30), Want(NOW - 15.0, 1)))
    assert after(quiet, burst) == 8
    assert after(quiet, over) == 6


def test_a_policy_may_name_its_own_span_to_hold_a_want() -> None:
    quiet = steady_pool(8, 4.0)
    burst = replace(SETTLED, wants=(Want(NOW - 400.0, 1), Want(NOW - 269.0, 30), Want(NOW - 15.0, 1)))
    own = policies(pool_policy(capacity=CapacityPolicy(minimum=2, maximum=40, stabilise_s=60.0)))
    assert after(quiet, burst) == 8
    assert after(quiet, burst, own) == 6


def test_what_a_backlog_adds_is_wanted_now_and_not_held() -> None:
    """It ends with the queue: held, every burst would keep its GPUs for three cold starts."""
    calm, _ = decided(steady_pool(6, 40.0))
    flooded, memory = decided(steady_pool(6, 40.0, queue=900.0))
    assert calm.explanation.after == 6.0
    assert flooded.explanation.after is not None
    assert flooded.explanation.after > 6.0
    assert memory.wants[-1].instances == 6


@given(queue=st.floats(0.0, 5000.0), running=st.floats(1.0, 64.0), size=st.integers(1, 30))
def test_of_a_backlog_no_more_is_remembered_than_what_the_rest_of_the_load_needs(
    queue: float, running: float, size: int
) -> None:
    without, _ = decided(steady_pool(size, running))
    _, memory = decided(steady_pool(size, running, queue=queue))
    load = {each.name: each.value for each in step_of(without, "offered_load").inputs}["load"]
    assert load is not None
    assert memory.wants[-1].instances <= max(size, present_need(load, 0.8))


@given(loads=st.lists(st.floats(0.0, 64.0), min_size=2, max_size=30))
def test_what_is_held_is_held_through_a_restart_in_every_cycle(loads: list[float]) -> None:
    """The memory that goes through its stored form decides as the one that never left the process."""
    kept, stored = State({POOL: SETTLED}), State({POOL: SETTLED})
    for cycle, running in enumerate(loads):
        seen = steady_pool(8, running, now=NOW + 15.0 * cycle)
        unbroken, kept = decide(seen, policies(), kept, NO_FORECAST)
        restarted, stored = decide(seen, policies(), from_json(State, to_json(stored)), NO_FORECAST)
        assert restarted == unbroken
    assert stored == kept


def test_wants_from_before_a_long_pause_do_not_count_as_having_watched() -> None:
    quiet = steady_pool(8, 4.0)
    paused = replace(SETTLED, wants=(Want(NOW - 900.0, 1), Want(NOW - 310.0, 1)))
    assert after(quiet, SETTLED) == 6
    assert after(quiet, paused) == 8


def test_after_a_change_the_pool_rests_and_the_decided_level_is_asked_for_again() -> None:
    quiet = steady_pool(8, 4.0)
    resting = replace(SETTLED, last_shrink_at=NOW - 299.0)
    assert after(quiet, replace(SETTLED, last_shrink_at=NOW - 300.0)) == 6
    assert after(quiet, resting) == 8
    assert after(quiet, replace(resting, last_target=6)) == 6


def test_a_shrink_is_judged_by_what_the_rest_would_carry() -> None:
    """Hysteresis at N/(N-k): 5 of 6 would be too full, although 6 are below target."""
    decision, _ = decided(steady_pool(6, 30.0))
    assert decision.explanation.code == "hysteresis_rest_too_full"
    assert decision.explanation.after == 6.0


def test_growth_by_load_waits_for_the_upper_edge_of_the_band() -> None:
    decision, _ = decided(steady_pool(6, 45.0))
    assert decision.explanation.code == "hysteresis_not_yet"
    assert decided(steady_pool(6, 52.0))[0].explanation.code == "load_above"


@pytest.mark.parametrize("cause", FAILURES)
def test_empty_is_not_zero(cause: Cause) -> None:
    """B-011: monitoring lost all targets at peak; everything stays, and says why."""
    quiet = steady_pool(8, 4.0)
    assert after(quiet) == 6
    blind = replace(
        quiet,
        signals={signal: Column.missing(8, cause) for signal in quiet.signals},
        pools={pool: dict.fromkeys(readings, Missing(cause)) for pool, readings in quiet.pools.items()},
    )
    decision, state = decided(blind)
    assert (decision.outcome, decision.explanation.deciding) == (Outcome.HELD, "coverage")
    assert decision.explanation.after == 8.0
    assert (state.blind, state.seen_since) == (1, None)


def test_one_missing_instance_of_many_does_not_stop_the_round() -> None:
    """B-019: unseen counts as idle for growth and as full for shrinking."""
    running = [62.0] * 20
    seen = steady_pool(20, running)
    partly = steady_pool(20, running, changes=_row_lost(seen, 0))
    assert after(seen) == 25
    assert after(partly) == 25


def test_below_coverage_the_pool_is_held_though_what_is_seen_is_idle() -> None:
    quiet = steady_pool(8, 4.0)
    assert after(quiet) == 6
    decision, _ = decided(steady_pool(8, 4.0, changes=_row_lost(quiet, 0)))
    assert step_of(decision, "coverage").vote is Vote.BLOCK
    assert decision.explanation.after == 8.0


def test_growth_goes_on_from_the_evidence_that_remains() -> None:
    full = steady_pool(4, 62.0)
    half_blind = steady_pool(4, 62.0, changes=_row_lost(full, 0), queue=500.0)
    assert after(half_blind) > 4


def test_ghosts_and_draining_instances_neither_count_nor_dilute() -> None:
    """B-016, B-018, B-071: the decision is made from those that serve."""
    members = (*instances(3), *_phased(4, Phase.UNREACHABLE), *_phased(5, Phase.DRAINING))
    pool = steady_pool(members=members, running=[62.0, 62.0, 62.0, 0.0, 0.0])
    lost = steady_pool(members=members, running=[62.0] * 3 + [0.0] * 2, changes=_row_lost(pool, 3))
    decision, _ = decided(lost)
    assert decision.explanation.before == 3.0
    assert step_of(decision, "coverage").code == "coverage_enough"
    assert decision.explanation.after == 4.0


def test_capacity_on_its_way_is_not_ordered_twice() -> None:
    """B-061: two full ones, two loading: 2 becomes 4 and stays 4 until they serve."""
    alone = steady_pool(2, 62.0, queue=600.0)
    coming = steady_pool(
        members=(*instances(2), *_phased(3, Phase.LOADING), *_phased(4, Phase.LOADING)),
        running=[62.0, 62.0, 0.0, 0.0],
        queue=600.0,
    )
    assert after(alone) == 4
    assert after(coming) == 4


def test_growth_by_a_ratio_starts_from_what_serves() -> None:
    """B-062: 4 of 10 serve and are hot; 4 x ratio is below 10, so 10 stay."""
    coming = [member for slot in range(5, 11) for member in _phased(slot, Phase.LOADING)]
    hot = steady_pool(
        members=(*instances(4), *coming),
        running=[30.0] * 4 + [0.0] * 6,
        changes={Signal.SM_ACTIVE: [0.95] * 10},
        pool_changes={PoolSignal.GATEWAY_QUEUE: STALE},
    )
    assert after(hot) == 10


@pytest.mark.parametrize("signal", POOL_SIGNALS)
def test_a_lost_pool_signal_blocks_shrinking(signal: PoolSignal) -> None:
    assert after(steady_pool(8, 4.0)) == 6
    assert after(steady_pool(8, 4.0, pool_changes={signal: Missing(Cause.QUERY_TIMEOUT)})) == 8


def test_a_failing_query_leaves_growth_to_a_healthy_signal() -> None:
    """B-053: the queue query fails, SM_ACTIVE is above target."""
    changes = {Signal.SM_ACTIVE: [0.95] * 4}
    healthy = steady_pool(4, 30.0, changes=changes)
    failing = steady_pool(4, 30.0, changes=changes, pool_changes={PoolSignal.GATEWAY_QUEUE: STALE})
    assert after(healthy) == 4
    decision, _ = decided(failing)
    assert decision.explanation.deciding == "utilisation"
    assert decision.explanation.after == 5.0
    assert step_of(decision, "queue").code == "queue_missing"


def test_the_device_counter_never_speaks_on_its_own() -> None:
    gone = [Missing(Cause.NOT_EXPORTED)] * 8
    decision, _ = decided(steady_pool(8, 4.0, changes={Signal.SM_ACTIVE: gone}))
    assert step_of(decision, "utilisation").code == "utilisation_device_only"
    assert step_of(decision, "utilisation").vote is Vote.ABSTAIN
    assert decision.explanation.after == 6.0


def test_idle_is_not_broken() -> None:
    """B-002: no latency and proven zero traffic: the pool may shrink; without the proof it may not."""
    idle = steady_pool(8, 0.0)
    assert after(idle) == 6
    unproven = steady_pool(8, 0.0, pool_changes={PoolSignal.ARRIVALS: Missing(Cause.QUERY_FAILED)})
    assert after(unproven) == 8


def test_a_queue_wakes_a_pool_of_nobody() -> None:
    """B-004, B-026: with 0 instances there is no average to speak of, only the gateway's queue."""
    asleep = policies(pool_policy(capacity=CapacityPolicy(minimum=0, maximum=8)))
    quiet = steady_pool(0, 0.0)
    waiting = steady_pool(0, 0.0, queue=5.0)
    assert after(quiet, SETTLED, asleep) == 0
    decision, _ = decided(waiting, SETTLED, asleep)
    assert decision.explanation.after == 1.0
    assert decision.explanation.before == 0.0


def test_traffic_keeps_the_last_instance_when_the_minimum_is_edited_to_zero() -> None:
    """B-074."""
    edited = policies(pool_policy(capacity=CapacityPolicy(minimum=0, maximum=8)))
    assert after(steady_pool(1, 1.0), SETTLED, edited) == 1


def test_latency_grows_the_pool_only_with_load_or_queue_and_only_when_it_lasts() -> None:
    """One garbage sample is no breach (B-047), and a long tail alone is not cured by GPUs."""
    slow = {PoolSignal.TTFT_P95: 9.0}
    first = decided(steady_pool(6, 45.0, queue=2.0, pool_changes=slow))
    assert (first[0].explanation.after, first[1].breaches) == (6.0, 1)
    lasting = replace(SETTLED, breaches=2)
    assert after(steady_pool(6, 45.0, queue=2.0, pool_changes=slow), lasting) == 7
    alone, _ = decided(steady_pool(8, 4.0, pool_changes=slow), lasting)
    assert (alone.explanation.code, alone.explanation.after) == ("latency_alone", 8.0)


def latency_at(**changes: Value) -> Input:
    """The latency that the rule judged, with its source; `door`, `engine`, `queue`, `leaves` a second."""
    names = {
        "door": PoolSignal.DOOR_TTFT_P95,
        "engine": PoolSignal.TTFT_P95,
        "queue": PoolSignal.GATEWAY_QUEUE,
        "leaves": PoolSignal.COMPLETIONS,
    }
    seen = {PoolSignal.TPOT_P95: Missing(Cause.TOO_FEW)} | {
        names[name]: value for name, value in changes.items()
    }
    decision, _ = decided(steady_pool(6, 45.0, pool_changes=seen))
    return next(each for each in step_of(decision, "latency").inputs if each.name == "latency")


def test_latency_is_what_callers_saw_where_there_is_a_door() -> None:
    """A pool that drowns at its door has a perfect P95 by its engines."""
    engine = latency_at(engine=0.2)
    assert (engine.value, engine.subject) == (0.2, "ttft_p95 (engine+queue)")
    door = latency_at(engine=0.2, door=9.0)
    assert (door.value, door.subject) == (9.0, "ttft_p95 (door)")


def test_without_a_door_the_mean_wait_is_added_to_what_the_engines_say() -> None:
    """Little's law: 20 who wait by 5 who leave a second have waited 4 s. With none leaving nobody knows."""
    assert latency_at(engine=0.2, queue=0.0).value == 0.2
    assert latency_at(engine=0.2, queue=20.0, leaves=5.0).value == 4.2
    unknown = latency_at(engine=0.2, queue=20.0, leaves=0.0)
    assert (unknown.value, unknown.subject) == (0.2, "ttft_p95 (engine)")


def test_a_door_that_fell_silent_is_replaced_by_a_bad_word_of_the_engines_and_by_no_good_one() -> None:
    silent = Missing(Cause.UNSEEN)
    good = latency_at(engine=0.2, door=silent)
    assert (good.value, good.cause, good.subject) == (None, Cause.UNSEEN, "ttft_p95 (door)")
    assert latency_at(engine=9.0, door=silent).value == 9.0
    quiet = steady_pool(8, 4.0, pool_changes={PoolSignal.DOOR_TTFT_P95: silent})
    assert after(steady_pool(8, 4.0)) == 6
    assert (after(quiet), decided(quiet)[0].explanation.code) == (8, "latency_missing")


def test_a_quantile_inside_the_first_bucket_says_nothing() -> None:
    """B-046."""
    unresolvable = {PoolSignal.TTFT_P95: Missing(Cause.UNRESOLVABLE)}
    decision, _ = decided(steady_pool(8, 4.0, pool_changes=unresolvable), replace(SETTLED, breaches=9))
    assert step_of(decision, "latency").code == "latency_unresolvable"
    assert decision.explanation.after == 6.0


def test_nothing_shrinks_while_callers_give_up() -> None:
    """B-049: the survivors' latency is fine."""
    assert after(steady_pool(8, 4.0, pool_changes={PoolSignal.CANCELLED_RATIO: 0.05})) == 6
    decision, _ = decided(steady_pool(8, 4.0, pool_changes={PoolSignal.CANCELLED_RATIO: 0.6}))
    assert (decision.explanation.code, decision.explanation.after) == ("cancelled_high", 8.0)


def test_requests_that_no_engine_confirms_are_believed_for_a_while_and_then_not() -> None:
    """B-021."""
    stuck = steady_pool(8, 0.0, pool_changes={PoolSignal.GATEWAY_IN_FLIGHT: 7.0})
    first, state = decided(stuck)
    assert (first.explanation.code, first.explanation.after) == ("in_flight_unconfirmed", 8.0)
    assert state.unconfirmed_since == NOW
    assert after(stuck, replace(SETTLED, unconfirmed_since=NOW - 299.0)) == 8
    assert after(stuck, replace(SETTLED, unconfirmed_since=NOW - 300.0)) == 6


def test_what_waits_at_the_gateway_stays_demand_whatever_the_engines_say() -> None:
    """B-021, the other half."""
    stuck = steady_pool(8, 0.0, queue=7.0, pool_changes={PoolSignal.GATEWAY_IN_FLIGHT: 7.0})
    assert after(stuck, replace(SETTLED, unconfirmed_since=NOW - 900.0)) == 8


def test_a_giant_rate_from_a_false_reset_is_no_load() -> None:
    """B-044: more tokens than the instance can generate, more arrivals than are accounted for."""
    honest = steady_pool(6, 45.0)
    tokens = steady_pool(6, 45.0, changes={Signal.GENERATION_TOKENS: [1e6] + [4000.0] * 5})
    arrivals = steady_pool(6, 45.0, pool_changes={PoolSignal.ARRIVALS: 1e4})
    assert [after(each) for each in (honest, tokens, arrivals)] == [6, 6, 6]


def test_rates_that_reach_into_a_gap_are_not_used() -> None:
    """B-024: after blindness the fleet stampedes neither up nor down."""
    quiet = steady_pool(8, 4.0)
    blind = replace(SETTLED, blind=3, seen_since=None, seen_at=NOW - 61.0)
    back, state = decided(quiet, blind)
    assert back.explanation.after == 8.0
    assert (state.blind, state.seen_since, state.gap_ended_at) == (0, NOW, NOW)
    assert (state.seen_at, after(quiet, replace(blind, seen_at=NOW - 60.0))) == (NOW, 6)
    assert after(quiet, replace(SETTLED, gap_ended_at=NOW - 299.0)) == 8
    assert after(quiet, replace(SETTLED, gap_ended_at=NOW - 300.0)) == 6


def test_nothing_shrinks_on_an_old_inventory() -> None:
    quiet = replace(steady_pool(8, 4.0), inventory=Missing(Cause.QUERY_TIMEOUT))
    decision, _ = decided(quiet)
    assert (decision.explanation.code, decision.explanation.after) == ("coverage_no_inventory", 8.0)


@pytest.mark.parametrize("cause", [Cause.NOT_ASKED, Cause.QUERY_FAILED])
def test_a_pool_whose_size_nobody_told_gets_no_number(cause: Cause) -> None:
    """Not even under a queue: "from 0 to 2" would shrink whatever is there. A pool of none grows."""
    none = steady_pool(0, 0.0, queue=50.0)
    assert after(none) == 2
    decision, memory = decided(replace(none, inventory=Missing(cause)))
    assert (decision.outcome, decision.actions) == (Outcome.HELD, ())
    assert (decision.explanation.code, decision.explanation.after) == ("coverage_no_size", None)
    assert (memory.seen_since, memory.blind) == (None, 1)


@pytest.mark.parametrize("running", [4.0, 62.0])
def test_a_persons_hold_is_the_last_word_until_it_ends(running: float) -> None:
    free = after(steady_pool(8, running))
    assert free != 8
    hold = Hold(None, "ada", "rollout", since=NOW - 60.0, until=NOW + 1.0)
    decision, _ = decided(steady_pool(8, running, holds=[hold]))
    assert (decision.outcome, decision.explanation.after) == (Outcome.HELD, 8.0)
    assert after(steady_pool(8, running, holds=[replace(hold, until=NOW)])) == free
    assert after(steady_pool(8, running, holds=[replace(hold, pool=pool_policy("vision").pool)])) == free


def test_a_lowered_maximum_is_reached_like_any_other_shrink() -> None:
    lowered = policies(pool_policy(capacity=CapacityPolicy(minimum=2, maximum=4)))
    busy = steady_pool(8, 45.0)
    assert after(busy) == 8
    assert after(busy, SETTLED, lowered) == 6
    assert after(busy, replace(SETTLED, last_shrink_at=NOW - 10.0), lowered) == 8
    assert after(steady_pool(8, 45.0, changes=_row_lost(busy, 0)), SETTLED, lowered) == 8


def test_a_forecast_raises_the_need_and_never_lowers_it() -> None:
    from controlplane.domain.decide import decide
    from controlplane.domain.forecast import Forecast, PoolForecast
    from controlplane.domain.state import State
    from tests.domain.stories import POOL

    def with_load(load: float, running: float) -> float | None:
        forecast = Forecast(NOW, {POOL: PoolForecast(90.0, 0.9, load)})
        plan, _ = decide(steady_pool(6, running), policies(), State({POOL: SETTLED}), forecast)
        return plan.decisions[POOL].explanation.after

    assert [with_load(load, 45.0) for load in (0.1, 8.0)] == [6.0, 10.0]
    assert [with_load(load, 62.0) for load in (0.1, 8.0)] == [8.0, 10.0]


def test_a_negative_or_nan_reading_counts_as_missing_and_never_as_a_number() -> None:
    """B-001, B-006."""
    for bad in (float("nan"), float("inf"), -1.0):
        damaged = steady_pool(8, 4.0, pool_changes={PoolSignal.GATEWAY_QUEUE: bad})
        assert after(damaged) == 8
    beyond = steady_pool(8, 4.0, changes={Signal.SM_ACTIVE: [9.2e18] + [0.35] * 7})
    assert after(beyond) == 8
    assert after(steady_pool(8, 4.0)) == 6


@given(observations(CycleKind.CAPACITY))
def test_the_outcome_is_within_bounds(built: Observation) -> None:
    """Never below the minimum; never larger than the maximum unless it already was."""
    capacity = pool_policy().capacity
    decision, _ = decided(built)
    explanation = decision.explanation
    assert explanation.before is not None
    assert explanation.after is not None
    assert explanation.after >= capacity.minimum
    assert explanation.after <= max(capacity.maximum, explanation.before)


@given(observations(CycleKind.CAPACITY))
def test_losing_what_is_seen_never_shrinks_further(built: Observation) -> None:
    """Monotone caution: with all engine readings gone the pool ends no smaller than it is."""
    before = decided(built)[0].explanation.before
    gone = replace(built, signals={each: column([STALE] * len(built.instances)) for each in built.signals})
    serving = any(each.phase is Phase.SERVING for each in built.instances)
    decision, _ = decided(gone)
    assert decision.explanation.after is not None
    assert before is not None
    if serving:
        assert decision.explanation.after >= before


@given(st.integers(2, 16), st.floats(0.0, 64.0), st.data())
def test_a_missing_reading_causes_no_shrink_that_was_not_there_with_it(
    count: int, running: float, data: st.DataObject
) -> None:
    levels = [running] * (count - 1) + [data.draw(st.floats(0.0, 64.0), label="the odd one")]
    whole = steady_pool(count, levels)
    damaged = data.draw(partly_unseen(whole))
    if after(whole) >= count:
        assert after(damaged) >= count


def _phased(slot: int, phase: Phase) -> tuple[Instance, ...]:
    return tuple(replace(each, phase=phase) for each in instances(slot)[-1:])


def _row_lost(built: Observation, row: int) -> dict[Signal, list[Value]]:
    return {
        signal: [Missing(Cause.UNSEEN) if each == row else readings[each] for each in range(len(readings))]
        for signal, readings in built.signals.items()
    }


def test_an_observation_without_the_signals_it_should_have_is_held() -> None:
    bare = observation(instances(4), {}, {})
    decision, _ = decided(bare)
    assert (decision.outcome, decision.explanation.after) == (Outcome.HELD, 4.0)
