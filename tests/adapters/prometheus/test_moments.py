"""E[L^2] from buckets."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.prometheus.moments import falls, square_mean

BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


def cumulative(lengths: list[float]) -> list[tuple[float, float]]:
    found = [(bound, float(sum(length <= bound for length in lengths))) for bound in BOUNDS]
    return [*found, (math.inf, float(len(lengths)))]


LENGTHS = st.lists(st.integers(1, 8000).map(float), min_size=1, max_size=60)


@given(LENGTHS, st.randoms(use_true_random=False))
def test_the_mean_of_squares_is_never_below_the_square_of_the_mean(
    lengths: list[float], shuffle: random.Random
) -> None:
    """Jensen; and neither the order nor the unit of the buckets matters."""
    buckets, mean = cumulative(lengths), sum(lengths) / len(lengths)
    found = square_mean(buckets, mean)
    assert found is not None
    assert found >= mean * mean * (1 - 1e-9)
    shuffle.shuffle(buckets)
    rates = [(bound, count / 300.0) for bound, count in buckets]
    assert square_mean(rates, mean) == pytest.approx(found)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.4])
def test_long_tailed_lengths_are_met_within_a_tenth(sigma: float) -> None:
    """Log-normal answers with a median of 200 tokens, as chat traffic has; seeded."""
    draw = random.Random(7)  # noqa: S311
    lengths = [min(5000.0, max(1.0, round(draw.lognormvariate(math.log(200), sigma)))) for _ in range(20_000)]
    true = sum(length**2 for length in lengths) / len(lengths)
    found = square_mean(cumulative(lengths), sum(lengths) / len(lengths))
    assert found == pytest.approx(true, rel=0.10)


def test_nothing_observed_is_nothing_known() -> None:
    assert square_mean([], 30.0) is None
    assert square_mean([(1.0, 0.0), (math.inf, 0.0)], 30.0) is None
    assert square_mean([(1.0, math.nan), (math.inf, math.nan)], 30.0) is None


def test_falling_buckets_are_repaired_and_told() -> None:
    """B-047: a bound that holds more than the next one."""
    whole = [(10.0, 5.0), (20.0, 8.0), (50.0, 8.0), (math.inf, 8.0)]
    ragged = [(10.0, 5.0), (20.0, 9.0), (50.0, 8.0), (math.inf, 9.0)]
    assert not falls(whole)
    assert falls(ragged)
    repaired = square_mean(ragged, 12.0)
    straight = square_mean([(10.0, 5.0), (20.0, 9.0), (50.0, 9.0), (math.inf, 9.0)], 12.0)
    assert repaired == straight
