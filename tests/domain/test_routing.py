"""Arithmetic of weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import routing

weights = st.lists(st.floats(0.001, 2.0), min_size=1, max_size=40).map(np.array)


@given(weights)
def test_quantising_keeps_the_sum_and_makes_nobody_zero(values: np.ndarray) -> None:
    levels = routing.quantise(values, 100, 256)
    assert np.all(levels >= 1)
    assert np.all(levels <= 256)
    wanted = max(len(values), int(np.rint(np.sum(values * 100))))
    assert int(np.sum(levels)) == wanted


@given(weights)
def test_quantising_moves_no_weight_by_more_than_one_level_unless_to_save_another(values: np.ndarray) -> None:
    large = np.maximum(values, 0.02)
    assert np.all(np.abs(routing.quantise(large, 100, 256) - large * 100) <= 1.0)


def test_equal_weights_are_pushed_exactly_equal() -> None:
    assert set(routing.quantise(np.ones(24), 100, 256).tolist()) == {100}


def test_a_gateway_with_a_small_range_still_fits_the_ceiling() -> None:
    assert [routing.unit_of(weight_max, 2.0) for weight_max in (256, 100, 10, 1)] == [100, 50, 5, 1]


@given(weights, st.floats(0.05, 0.9), st.floats(1.1, 4.0))
def test_clipped_weights_lie_within_their_own_medians_bounds(
    values: np.ndarray, floor: float, ceiling: float
) -> None:
    nobody = np.zeros(len(values), dtype=np.bool_)
    clipped = routing.within_range(values, floor, ceiling, nobody)
    middle = float(np.median(clipped))
    assert np.all((clipped >= floor * middle * (1 - 1e-6)) & (clipped <= ceiling * middle * (1 + 1e-6)))


def test_within_the_deadband_weights_are_exactly_one() -> None:
    shaped = routing.within_deadband(np.array([0.90, 0.89, 1.0, 1.1, 1.11]), 0.1000001)
    assert shaped.tolist() == [1.0, 0.89, 1.0, 1.0, 1.11]


def test_a_limit_is_never_zero_because_zero_means_unlimited_at_the_gateway() -> None:
    assert routing.limits(np.array([0.01, 0.4, 1.0, 1.9]), 40).tolist() == [1, 16, 40, 40]
    assert routing.shares(np.array([1, 16, 41]), 3).tolist() == [1, 5, 13]


def test_a_lone_instance_has_nothing_to_be_compared_with() -> None:
    lone = routing.relative(np.array([0.4]), np.array([True]), np.array([1.0]))
    assert lone.tolist() == [1.0]
