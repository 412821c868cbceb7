"""Offered load: three estimates, of which each sees what the others miss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.load import offered_load, pool_speed, present_need
from controlplane.domain.observation import Observation
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause, Missing, PoolSignal, Signal
from controlplane.domain.state import PoolState, State
from controlplane.domain.view import PoolView, group_rows, view_of
from tests.builders import MIX, Value, policies, profile, steady_pool
from tests.domain.stories import POOL


def view(observation: Observation, rules: Policies | None = None, state: PoolState | None = None) -> PoolView:
    rows = group_rows(observation.instances)[POOL]
    return view_of(observation, rules or policies(), POOL, State({POOL: state or PoolState()}), rows)


def test_a_pool_at_b_star_offers_one_instance_of_load_each() -> None:
    load = offered_load(view(steady_pool(5, 64.0)))
    assert load.concurrency == 64
    for estimate in (load.leaving, load.arriving, load.in_service):
        assert estimate.lower == pytest.approx(5.0)
        assert estimate.upper == pytest.approx(5.0)


def test_a_flash_crowd_is_seen_in_arrivals_before_anything_leaves() -> None:
    calm = steady_pool(5, 20.0)
    crowd = steady_pool(5, 20.0, pool_changes={PoolSignal.ARRIVALS: 200.0}, queue=9000.0)
    assert offered_load(view(crowd)).arriving.lower > 2 * offered_load(view(calm)).arriving.lower


def burst(now_a_second: float, interval_s: float = 1.0, **changes: Value) -> float:
    """Arriving instances as proven, where a window of minutes still says 20 requests a second."""
    readings: dict[PoolSignal, Value] = {
        PoolSignal.ARRIVALS: 20.0,
        PoolSignal.ARRIVALS_NOW: now_a_second,
        PoolSignal.REFUSALS_NOW: changes.get("refused", 0.0),
    }
    observed = steady_pool(5, 40.0, queue=900.0, pool_changes=readings)
    source = replace(observed.source, interval_s=interval_s)
    load = offered_load(view(replace(observed, source=source)))
    return load.arriving.lower * load.tokens_per_instance / MIX.output_mean


def test_a_flash_crowd_is_seen_in_its_first_four_scrapes_however_long_the_window() -> None:
    """64 came in each of 4 s: 256, of which chance could make at most 2 x 16; before, nothing is seen."""
    assert burst(20.0) == pytest.approx(20.0)
    assert burst(64.0) == pytest.approx((256.0 - 32.0) / 4.0)


def test_a_few_callers_more_than_usual_are_chance_and_no_crowd() -> None:
    assert burst(24.0) == pytest.approx(20.0)
    assert burst(24.0, interval_s=15.0) == pytest.approx(24.0 - 2.0 * (24.0 / 60.0) ** 0.5)


def test_a_crowd_of_which_most_are_refused_and_come_again_counts_once_per_retry_after() -> None:
    arrivals = (256.0 - 32.0) / 4.0
    assert burst(64.0, refused=36.0) == pytest.approx(arrivals - 36.0 + 36.0 / 6.0)


@given(st.floats(0.0, 500.0), st.floats(1.0, 30.0))
def test_a_few_seconds_prove_never_more_than_what_came(now_a_second: float, interval_s: float) -> None:
    assert burst(now_a_second, interval_s) <= max(20.0, now_a_second) * (1.0 + 1e-9)


def test_a_burst_of_arrivals_never_keeps_a_pool_from_shrinking_by_chance() -> None:
    quiet = steady_pool(5, 10.0)
    noisy = steady_pool(5, 10.0, pool_changes={PoolSignal.ARRIVALS_NOW: 3.0})
    assert offered_load(view(noisy)).upper == offered_load(view(quiet)).upper


def arriving(arrivals: float, refusals: Value) -> tuple[float, float | None]:
    """Arriving requests a second as the load proves them, and as it could be at most."""
    changes = {PoolSignal.ARRIVALS: arrivals, PoolSignal.REFUSALS: refusals}
    load = offered_load(view(steady_pool(5, 40.0, queue=900.0, pool_changes=changes)))
    each = MIX.output_mean / load.tokens_per_instance
    upper = load.arriving.upper
    return load.arriving.lower / each, None if upper is None else upper / each


def test_a_refused_caller_who_comes_again_is_one_caller_and_no_crowd() -> None:
    """60 a second are refused and come again every 5 s: 300 wait outside, and are worked off in 30 s."""
    assert arriving(80.0, 0.0) == pytest.approx((80.0, 80.0))
    assert arriving(80.0, 60.0) == pytest.approx((20.0 + 300.0 / 30.0, 80.0))


@pytest.mark.parametrize("refusals", [Missing(Cause.NOT_EXPORTED), 500.0])
def test_refusals_that_are_unknown_or_more_than_what_came_hide_no_arrival(refusals: Value) -> None:
    proven, most = arriving(80.0, refusals)
    assert most == pytest.approx(80.0)
    assert proven == pytest.approx(80.0 if isinstance(refusals, Missing) else 80.0 / 6.0)


def test_a_backlog_is_load_on_top() -> None:
    plain, waiting = steady_pool(5, 64.0), steady_pool(5, 64.0, queue=300.0)
    extra = offered_load(view(waiting)).leaving.lower - offered_load(view(plain)).leaving.lower
    rate = offered_load(view(plain)).tokens_per_instance
    assert extra == pytest.approx(300.0 * MIX.output_mean / 30.0 / rate)


def test_what_is_in_service_does_not_depend_on_the_scale_of_the_profile() -> None:
    """The guard against a cost estimate that is 20 % too low."""
    observed = steady_pool(5, 40.0)
    true = offered_load(view(observed))
    cheap = policies(profiles=[profile(f=0.8)])
    assert offered_load(view(observed, cheap)).in_service.lower == pytest.approx(
        true.in_service.lower, rel=0.02
    )


def test_a_throttled_fleet_needs_more_instances_for_the_same_work() -> None:
    """speed_abs: a power cap on the whole pool must not disappear in a comparison within it."""
    normal, capped = steady_pool(5, 40.0), steady_pool(5, 40.0, speed=0.5)
    assert pool_speed(view(normal)) == pytest.approx(1.0)
    assert pool_speed(view(capped)) == pytest.approx(0.5)
    rate = offered_load(view(normal)).tokens_per_instance
    assert offered_load(view(capped)).tokens_per_instance == pytest.approx(rate / 2, rel=0.05)


def test_an_unseen_instance_is_idle_from_below_and_full_from_above() -> None:
    changes = {
        signal: [Missing(Cause.UNSEEN), *([column[1].value] * 19)]  # type: ignore[union-attr]
        for signal, column in steady_pool(20, 30.0).signals.items()
    }
    whole, partly = (
        offered_load(view(steady_pool(20, 30.0, changes=each))).in_service for each in (None, changes)
    )
    assert partly.lower == pytest.approx(whole.lower * 19 / 20)
    assert partly.upper == pytest.approx(partly.lower + 1.0)


def test_idle_must_be_proven() -> None:
    idle = steady_pool(3, 0.0)
    assert offered_load(view(idle)).upper == 0.0
    one_unseen = steady_pool(3, 0.0, changes={Signal.RUNNING: [0.0, 0.0, Missing(Cause.UNSEEN)]})
    assert offered_load(view(one_unseen)).upper is None


def test_an_unknown_mix_may_grow_a_pool_and_never_shrink_it() -> None:
    unknown = {
        signal: Missing(Cause.NO_TRAFFIC)
        for signal in (PoolSignal.PROMPT_MEAN, PoolSignal.OUTPUT_MEAN, PoolSignal.OUTPUT_SQUARE_MEAN)
    }
    first = offered_load(view(steady_pool(3, 10.0, pool_changes=unknown)))
    remembered = offered_load(view(steady_pool(3, 10.0, pool_changes=unknown), state=PoolState(mix=MIX)))
    assert first.lower > 0.0
    assert first.upper is None
    assert remembered.upper is not None


@pytest.mark.parametrize(
    ("load", "need"),
    [(0.0, 0), (0.01, 1), (0.73, 1), (0.74, 2), (1.6, 2), (1.61, 3), (7.2, 9), (80.0, 100), (80.1, 101)],
)
def test_the_need_is_the_target_and_for_the_smallest_pools_less(load: float, need: int) -> None:
    assert present_need(load, 0.80) == need


@given(st.floats(0.0, 500.0), st.floats(0.0, 500.0), st.floats(0.3, 1.0))
def test_more_load_never_needs_fewer(one: float, other: float, target: float) -> None:
    few, many = sorted((one, other))
    assert present_need(few, target) <= present_need(many, target)


@given(st.floats(0.01, 500.0))
def test_the_need_holds_the_measured_bound_of_its_size(load: float) -> None:
    need = present_need(load, 1.0)
    assert load / need <= max(1.0 - 0.27 / np.sqrt(need), 0.5) + 1e-9


def test_external_routing_has_no_arrivals_to_miss() -> None:
    from controlplane.domain.policy import Routing
    from tests.builders import pool_policy

    no_door = {
        PoolSignal.ARRIVALS: Missing(Cause.NOT_ASKED),
        PoolSignal.GATEWAY_QUEUE: Missing(Cause.NOT_ASKED),
    }
    external = policies(replace(pool_policy(), routing=Routing.EXTERNAL))
    built = steady_pool(4, 10.0, pool_changes=no_door)
    assert offered_load(view(built)).upper is None
    assert offered_load(view(built, external)).upper is not None
