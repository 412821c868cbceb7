"""The one definition of imbalance, and where it is undefined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.fleet import Phase
from controlplane.domain.imbalance import of_busyness, of_utilisation
from controlplane.domain.readings import Cause, Missing, Signal
from tests.builders import NOW, instances, steady_pool
from tests.domain.stories import decided, step_of
from tests.domain.test_load import view


def test_it_is_the_largest_distance_from_the_mean() -> None:
    built = steady_pool(4, 10.0, changes={Signal.SM_ACTIVE: [0.2, 0.4, 0.4, 0.8]})
    assert of_utilisation(view(built)).value == pytest.approx(0.35)


def test_the_better_counter_is_used_and_named() -> None:
    built = steady_pool(2, 10.0)
    assert of_utilisation(view(built)).counter == "sm_active"
    without = steady_pool(2, 10.0, changes={Signal.SM_ACTIVE: [Missing(Cause.NOT_EXPORTED)] * 2})
    assert of_utilisation(view(without)).counter == "gpu_utilisation"


def test_busyness_shows_what_the_saturated_device_counter_hides() -> None:
    """A throttled card with as many requests as the others: the device counter reads 1 everywhere."""
    gone = [Missing(Cause.NOT_EXPORTED)] * 4
    built = view(steady_pool(4, 16.0, speed=[1.0, 1.0, 1.0, 0.25], changes={Signal.SM_ACTIVE: gone}))
    assert of_utilisation(built).value == pytest.approx(0.0)
    assert of_busyness(built).value == pytest.approx(1.0 - (3 * 0.25 + 1.0) / 4)


@pytest.mark.parametrize(
    ("count", "running", "cause"), [(1, 10.0, Cause.TOO_FEW), (4, 0.9, Cause.NO_TRAFFIC), (4, 1.0, None)]
)
def test_it_is_undefined_and_not_zero_where_it_has_no_meaning(
    count: int, running: float, cause: Cause | None
) -> None:
    imbalance = of_busyness(view(steady_pool(count, running)))
    assert (imbalance.value is None) == (cause is not None)
    assert imbalance.cause is (cause or Cause.NONE)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.LOADING, Phase.UNREACHABLE])
def test_what_takes_no_traffic_never_counts(phase: Phase) -> None:
    members = (*instances(3), replace(instances(4)[3], phase=phase))
    built = steady_pool(members=members, running=[10.0] * 3 + [0.0])
    assert of_busyness(view(built)).value == pytest.approx(0.0)


def test_a_garbage_sample_does_not_raise_it() -> None:
    """B-006."""
    built = steady_pool(4, 10.0, changes={Signal.SM_ACTIVE: [9.2e18, 0.35, 0.35, 0.35]})
    assert of_utilisation(view(built)).value == pytest.approx(0.0)


def test_both_stand_in_the_explanation_of_a_capacity_decision_with_the_hottest_of_each() -> None:
    decision, _ = decided(steady_pool(4, 10.0))
    assert [each.name for each in step_of(decision, "imbalance").inputs] == [
        "imbalance_utilisation",
        "imbalance_busyness",
        "hottest_utilisation",
        "hottest_busyness",
    ]


def test_the_hottest_is_named_and_among_equals_it_is_the_one_with_most_running() -> None:
    """On a saturated counter all but one may read the same."""
    built = steady_pool(running=[9.0, 8.0, 12.0, 3.0], changes={Signal.SM_ACTIVE: [0.7, 0.9, 0.9, 0.3]})
    hottest = of_utilisation(view(built)).hottest
    assert hottest is not None
    assert hottest.instance == instances(4)[2].instance_id
    assert hottest.value == pytest.approx(0.9)


@pytest.mark.parametrize(("unseen", "known"), [(1, True), (2, False)])
def test_below_the_coverage_it_is_unknown_for_the_one_not_seen_may_be_the_hot_one(
    unseen: int, known: bool
) -> None:
    """Nine of ten are the policy's coverage, eight are not."""
    readings = [Missing(Cause.UNSEEN)] * unseen + [0.5] * (10 - unseen)
    found = of_utilisation(view(steady_pool(10, 10.0, changes={Signal.SM_ACTIVE: readings})))
    assert found.counter == ("sm_active" if known else "gpu_utilisation")
    both = {Signal.SM_ACTIVE: readings, Signal.DRAM_ACTIVE: readings, Signal.GPU_UTILISATION: readings}
    alone = of_utilisation(view(steady_pool(10, 10.0, changes=both)))
    assert (alone.value is not None) == known
    assert alone.cause is (Cause.NONE if known else Cause.UNSEEN)


def test_instances_that_have_just_begun_to_serve_do_not_make_it_unknown() -> None:
    """They have no window behind them yet; a pool that grew is still compared over the others."""
    young = [replace(each, ready_at=NOW - 5.0) for each in instances(10)[:5]]
    built = steady_pool(
        members=(*young, *instances(10)[5:]),
        running=[10.0] * 10,
        changes={Signal.SM_ACTIVE: [Missing(Cause.WINDOW_TOO_SHORT)] * 5 + [0.5] * 4 + [0.9]},
    )
    assert of_utilisation(view(built)).value == pytest.approx(0.32)
