"""Seeded traces: close to what was published, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.traffic.seeded import SHAPES, seeded_trace
from controlplane.traffic.statistics import describe, sparkline

Z = {50: 0.0, 95: 1.6449, 99: 2.3263}


@pytest.mark.parametrize(
    ("shape", "which", "published"),
    [
        ("chat", "prompt", {50: 1020, 95: 4083, 99: 4142}),
        ("chat", "output", {50: 129, 95: 451, 99: 601}),
        ("code", "prompt", {50: 1911, 95: 7653, 99: 7720}),
        ("code", "output", {50: 8, 95: 79, 99: 270}),
    ],
)
def test_the_fit_is_within_fifteen_percent_of_each_published_quantile(
    shape: str, which: str, published: dict[int, float]
) -> None:
    lengths = getattr(SHAPES[shape], which)
    errors = {q: lengths.quantile_error(Z[q], value) for q, value in published.items()}
    assert all(abs(error) <= 0.15 for error in errors.values()), errors


def test_a_long_chat_trace_has_the_published_rate_burstiness_and_medians() -> None:
    found = describe(seeded_trace(SHAPES["chat"], 7200, seed=5))
    assert found["mean_rate"] == pytest.approx(5.53, rel=0.05)
    assert found["gap_cv"] == pytest.approx(1.09, abs=0.08)
    assert found["prompt_tokens"]["p50"] == pytest.approx(1020, rel=0.05)
    assert found["output_tokens"]["p50"] == pytest.approx(129, rel=0.05)


def test_the_rate_swings_low_at_the_ends_and_high_in_the_middle() -> None:
    trace = seeded_trace(SHAPES["chat"], 3600, seed=1, rate=20)
    first, middle, last = (
        int(((trace.arrival_s >= at) & (trace.arrival_s < at + 600)).sum()) for at in (0, 1500, 3000)
    )
    assert middle > 1.4 * first
    assert middle > 1.4 * last


def test_the_same_seed_gives_the_same_trace_and_another_another() -> None:
    first, same, other = (seeded_trace(SHAPES["mixed"], 300, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.arrival_s, same.arrival_s)
    assert np.array_equal(first.output_tokens, same.output_tokens)
    assert not np.array_equal(first.arrival_s[:50], other.arrival_s[:50])


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_are_at_least_one_and_within_the_published_maximum(shape: str) -> None:
    trace = seeded_trace(SHAPES[shape], 600, seed=2)
    assert trace.prompt_tokens.min() >= 1
    assert trace.output_tokens.min() >= 1
    assert trace.prompt_tokens.max() <= SHAPES[shape].prompt.longest
    assert trace.arrival_s[-1] <= 600


@given(st.sampled_from(sorted(SHAPES)), st.floats(60, 2000), st.integers(0, 50))
def test_a_seeded_trace_repeats_after_the_length_it_was_drawn_for(
    shape: str, seconds: float, seed: int
) -> None:
    """Whenever its last request came, and whichever of them are taken."""
    trace = seeded_trace(SHAPES[shape], seconds, seed)
    assert trace.arrival_s[-1] <= seconds
    assert trace.period_s == trace.take(trace.arrival_s < trace.arrival_s[0] + 1e-9).period_s
    assert trace.period_s == int(np.ceil(seconds))


def test_a_rate_that_draws_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no request in 1 s"):
        seeded_trace(SHAPES["chat"], 1, seed=0, rate=1e-9)


def test_more_requests_than_memory_holds_are_refused_before_any_is_drawn() -> None:
    with pytest.raises(ValueError, match="allowed: at most 1e"):
        seeded_trace(SHAPES["chat"], 1e9, seed=0, rate=1e9)


def test_the_sparkline_is_highest_where_the_trace_is_busiest() -> None:
    line = sparkline(seeded_trace(SHAPES["chat"], 3600, seed=1, rate=20), width=12)
    assert len(line) == 12
    assert max(range(12), key=line.__getitem__) in {4, 5, 6, 7}
