"""Windows and superposed copies: nothing is multiplied, and the peak stays below what was asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.traffic.scale import (
    REQUESTS,
    TOKENS,
    Cost,
    ScaleError,
    Target,
    Window,
    clip,
    jittered,
    load_by_second,
    peak_offered,
    scale_to,
    scaled,
)
from controlplane.traffic.trace import Trace


def trace_of(*arrivals: float, prompt: int = 10, output: int = 5) -> Trace:
    n = len(arrivals)
    return Trace(np.array(sorted(arrivals), dtype=np.float64), np.full(n, prompt), np.full(n, output))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Up to 40 requests within two minutes, each told apart by its prompt's length."""
    arrivals = sorted(draw(st.lists(st.floats(0, 120), min_size=1, max_size=40)))
    outputs = draw(st.lists(st.integers(1, 500), min_size=len(arrivals), max_size=len(arrivals)))
    return Trace(np.array(arrivals), np.arange(1, len(arrivals) + 1), np.array(outputs))


@given(traces(), st.integers(1, 6), st.integers(0, 9))
def test_k_copies_over_a_whole_period_hold_each_request_k_times(trace: Trace, k: int, seed: int) -> None:
    played = scaled(trace, Window(trace.period_s, peak_s=1), k, seed=seed).trace
    assert Counter(played.prompt_tokens.tolist()) == dict.fromkeys(range(1, len(trace) + 1), k)
    lengths = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert set(zip(played.prompt_tokens.tolist(), played.output_tokens.tolist(), strict=True)) == lengths


@given(traces(), st.floats(0.05, 6), st.integers(1, 300), st.integers(0, 9))
def test_arrivals_are_sorted_and_lie_in_the_window(
    trace: Trace, copies: float, for_s: int, seed: int
) -> None:
    try:
        played = scaled(trace, Window(for_s, peak_s=1), copies, seed=seed).trace
    except ScaleError:
        return  # nothing falls into so short a window
    assert np.all(np.diff(played.arrival_s) >= 0)
    assert played.arrival_s[0] >= 0
    assert played.arrival_s[-1] < for_s


@given(traces(), st.floats(0.5, 20), st.integers(1, 200), st.integers(1, 30), st.integers(0, 9))
def test_the_peak_of_what_is_played_never_exceeds_the_target(
    trace: Trace, peak: float, for_s: int, peak_s: int, seed: int
) -> None:
    window = Window(for_s, peak_s=min(peak_s, for_s))
    try:
        played = scale_to(trace, window, Target(REQUESTS, peak, share=1.0), seed=seed)
    except ScaleError:
        return  # one request, or a thousand copies, do not reach it
    assert peak_offered(played.trace, window.peak_s) <= peak + 1e-9
    assert played.peak <= peak + 1e-9


@given(traces(), st.integers(1, 5))
def test_more_copies_only_add_load(trace: Trace, k: int) -> None:
    window = Window(trace.period_s, peak_s=1)
    fewer, more = (load_by_second(scaled(trace, window, n).trace) for n in (k, k + 0.5))
    assert np.all(more[: fewer.size] - fewer[: more.size] >= 0)


def test_a_trace_shorter_than_the_window_is_followed_by_silence() -> None:
    assert peak_offered(trace_of(0, 0), 1) == 2.0
    assert peak_offered(trace_of(0, 0), 4) == 0.5


def test_the_wanted_peak_is_nearly_reached() -> None:
    random = np.random.default_rng(3)
    trace = trace_of(*random.uniform(0, 600, 600))
    played = scale_to(trace, Window(120), Target(REQUESTS, 10.0))
    assert 8.3 < played.peak <= 8.5
    assert played.copies >= 4
    assert peak_offered(played.trace) == pytest.approx(played.peak)


def test_a_trace_that_is_too_busy_is_thinned_by_whole_requests_and_it_is_said() -> None:
    trace = trace_of(*np.linspace(0, 599, 6000))
    played = scale_to(trace, Window(600), Target(REQUESTS, 5.0, share=1.0))
    assert played.copies == 0
    assert 0.4 < played.thinned < 0.5
    assert set(played.trace.output_tokens.tolist()) == {5}
    assert peak_offered(played.trace) <= 5.0


def test_capacity_in_instances_uses_the_caller_s_cost() -> None:
    """Ten tokens a second and instance: 100 s of one instance for 1000 tokens."""
    trace = trace_of(*range(600), prompt=10, output=100)
    played = scale_to(trace, Window(300), Target(Cost(output=0.1), capacity=40.0))
    assert played.target == pytest.approx(34.0)
    assert played.peak == pytest.approx(peak_offered(played.trace, 60, Cost(output=0.1)))
    assert 33.0 < played.peak <= 34.0


def test_cost_is_the_step_model_at_a_full_batch() -> None:
    d0, d1, d2, p1, f, batch = 0.0064, 0.000012, 4.4e-8, 0.0000175, 1.08, 40
    p, o = 1000, 200
    tau = f * (d0 + batch * (d1 + d2 * (p + o / 2) + p1 * p / o))
    cost = Cost(prompt=f * p1, output=f * (d0 / batch + d1), output_context=f * d2)
    assert cost(trace_of(0, prompt=p, output=o))[0] == pytest.approx(o * tau / batch)


def test_the_window_lies_around_the_busiest_minute() -> None:
    trace = trace_of(*range(0, 1000, 10), *np.linspace(700, 759.5, 200))
    played = scaled(trace, Window(200))
    assert played.start_s == 630
    assert played.peak == peak_offered(trace)


@pytest.mark.parametrize(("busiest", "start"), [(5, 0), (960, 800)])
def test_the_window_stays_within_the_trace(busiest: int, start: int) -> None:
    trace = trace_of(*range(0, 1000, 10), 999, *np.linspace(busiest, busiest + 30, 200))
    assert scaled(trace, Window(200)).start_s == start


def test_from_chooses_the_window() -> None:
    trace = trace_of(*range(100), prompt=1)
    played = scaled(trace, Window(10, from_s=50, peak_s=10))
    assert played.trace.arrival_s.tolist() == list(range(10))
    assert played.start_s == 50


def test_a_window_longer_than_the_trace_repeats_it() -> None:
    played = scaled(trace_of(0.5, 9.25), Window(25, peak_s=5))
    assert played.trace.arrival_s.tolist() == [0.5, 9.25, 10.5, 19.25, 20.5]
    assert played.repeats == 3


def test_the_same_seed_gives_the_same_traffic_and_another_seed_another() -> None:
    trace = trace_of(*np.random.default_rng(1).uniform(0, 300, 300))
    first, same, other = (scaled(trace, Window(100), 3.5, seed=seed).trace for seed in (7, 7, 8))
    assert np.array_equal(first.arrival_s, same.arrival_s)
    assert not np.array_equal(first.arrival_s, other.arrival_s)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: scaled(t, Window(10, peak_s=5), 0), "0 copies"),
        (lambda t: scaled(t, Window(10, peak_s=5), 1001), "1001 copies"),
        (lambda t: scaled(t, Window(10, peak_s=11)), "a peak over 11 s"),
        (lambda t: scaled(t, Window(10, from_s=100, peak_s=5)), "from second 100"),
        (lambda t: scale_to(t, Window(10, peak_s=5), Target(REQUESTS, 0)), "a wanted peak of 0"),
        (lambda t: scale_to(t, Window(10, peak_s=5), Target(REQUESTS, float("nan"))), "a wanted peak of nan"),
        (lambda t: scale_to(t, Window(10, peak_s=5), Target(REQUESTS, 1e9)), "1000 copies peak at"),
        (lambda t: scale_to(t, Window(10, peak_s=5), Target(TOKENS, 1e-3)), "no request within a peak"),
        (lambda t: clip(t, 1), "a context of 1 tokens"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(ScaleError, match=said) as caught:
        call(trace_of(0, 1, 2))
    assert "allowed" in str(caught.value)


@given(traces(), st.integers(2, 600))
def test_clipping_fits_the_context_keeps_the_rest_and_counts(trace: Trace, context: int) -> None:
    cut, clipped = clip(trace, context)
    before = trace.prompt_tokens + trace.output_tokens
    after = cut.prompt_tokens + cut.output_tokens
    assert np.all(after <= context)
    assert np.all(cut.prompt_tokens >= 1)
    assert np.all(cut.output_tokens >= 1)
    assert clipped == int((before > context).sum())
    assert np.all((after == before) | (before > context))


def test_jitter_moves_arrivals_by_less_than_its_width_and_sorts() -> None:
    trace = replace(trace_of(*[0.0] * 50, *[3.0] * 50))
    moved = jittered(trace, 3.0, seed=1)
    assert np.all(np.diff(moved.arrival_s) >= 0)
    assert moved.arrival_s[0] >= 0
    assert moved.arrival_s[-1] < 6
    assert np.unique(moved.arrival_s).size == 100
