"""`/metrics` of the twin against a recorded scrape of the real engine, family by family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from controlplane.twin.engine.engine import Event, EventKind, Finished
from controlplane.twin.live.exposition import Snapshot, render
from controlplane.twin.live.stats import Life, Stats

SNAPSHOT = Snapshot("tiny-llama", 1, 0, 0.25, 2_097_152, 1_796_086_029.0, 21.2, {})
SIZED_BY_MODEL = {
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_params_max_tokens",
    "vllm:request_prefill_kv_computed_tokens",
}
"""Buckets of these go up to the longest context, so a longer one only adds edges at the end."""

OTHER_LABELS = {"vllm:cache_config_info"}
"""Its labels are settings, most of which only this release and this start had."""


@pytest.fixture
def real(shared: Path) -> dict[str, Metric]:
    return families((shared / "recordings" / "vllm_0.32.txt").read_text("utf-8"))


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def twin(stats: Stats | None = None) -> dict[str, Metric]:
    return families(render(SNAPSHOT, stats or Stats()).decode())


def label_names(family: Metric) -> set[frozenset[str]]:
    return {frozenset(sample.labels) for sample in family.samples}


def edges(family: Metric) -> list[str]:
    found: list[str] = []
    for sample in family.samples:
        if sample.name.endswith("_bucket") and sample.labels["le"] not in found:
            found.append(sample.labels["le"])
    return found


def values(text: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text for s in f.samples}


def test_every_family_of_the_engine_is_there_with_its_type(real: dict[str, Metric]) -> None:
    mine = twin()
    assert sorted(mine) == sorted(real)
    assert {name: family.type for name, family in mine.items()} == {n: f.type for n, f in real.items()}


def test_every_family_has_the_engine_s_labels(real: dict[str, Metric]) -> None:
    mine = twin()
    different = {
        name: (label_names(mine[name]), label_names(real[name]))
        for name in set(real) - OTHER_LABELS
        if label_names(mine[name]) != label_names(real[name])
    }
    assert different == {}


def test_buckets_are_the_engine_s_and_token_buckets_go_on_to_the_longest_context(
    real: dict[str, Metric],
) -> None:
    mine = twin()
    for name, family in real.items():
        theirs = edges(family)
        if name in SIZED_BY_MODEL:
            assert edges(mine[name])[: len(theirs) - 1] == theirs[:-1]
        else:
            assert edges(mine[name]) == theirs, name


def test_help_texts_are_the_engine_s(real: dict[str, Metric]) -> None:
    assert {n: f.documentation for n, f in twin().items()} == {n: f.documentation for n, f in real.items()}


def test_every_counter_and_histogram_says_since_when_it_counts(real: dict[str, Metric]) -> None:
    created = {name for name in real if name.endswith("_created")}
    assert {"http_request_size_bytes_created", "http_response_size_bytes_created"} <= created
    mine = twin()
    for name in created:
        assert {sample.value for sample in mine[name].samples} == {SNAPSHOT.created}, name


@given(st.lists(st.floats(0.0, 1e9), max_size=30), st.integers(0, 2))
def test_histograms_are_printed_as_the_library_prints_them(values: list[float], times: int) -> None:
    stats = Stats()
    histogram = stats.histograms["e2e_request_latency_seconds"]
    for value in values:
        histogram.observe(value, times)
    name = "vllm:e2e_request_latency_seconds"
    family = HistogramMetricFamily(name, "", labels=["engine", "model_name"])
    family.add_metric(["0", "tiny-llama"], histogram.cumulative(), histogram.total)
    printed = render(SNAPSHOT, stats).decode()
    assert [line for line in lines([family]) if line.startswith(name)] == [
        line for line in printed.splitlines() if line.startswith((f"{name}_b", f"{name}_count", f"{name}_s"))
    ]


def lines(families: list[Metric]) -> list[str]:
    class Fixed(Collector):
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed())
    return generate_latest(registry).decode().splitlines()


def test_two_starts_of_two_models_do_not_share_their_texts() -> None:
    first, second = (
        render(replace(SNAPSHOT, model=m, created=c), Stats()).decode() for m, c in (("a%s", 1e9), ("b", 3e9))
    )
    assert first.count('model_name="a%s"') == second.count('model_name="b"') > 300
    assert "3e+09" in second
    assert "3e+09" not in first


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 90.0)), min_size=1, max_size=20))
def test_no_series_goes_back_when_a_lie_begins_or_ends(told: list[tuple[bool, float]]) -> None:
    stats, at = Stats(), 0.0
    before = counted(stats)
    for key, (lying, length) in enumerate(told):
        stats.claim = 0.1 if lying else 1.0
        stats.arrive(key, Life(100, 2, at))
        for kind in (EventKind.SCHEDULED, EventKind.TOKEN, EventKind.TOKEN, EventKind.FINISHED):
            at += length
            stats.step(Finished(at - length, at, 1, 1, 0, (Event(kind, key, at),)))
        after = counted(stats)
        assert all(new >= old for new, old in zip(after, before, strict=True))
        before = after


def counted(stats: Stats) -> list[float]:
    """The values of all histogram series."""
    every = stats.histograms.values()
    return [value for each in every for value in (*dict(each.cumulative()).values(), each.total)]


def test_a_finished_request_moves_what_the_real_engine_moves() -> None:
    stats = Stats()
    before = values(twin(stats).values())
    stats.arrive(0, Life(prompt_tokens=100, output_tokens=2, arrived=10.0))
    scheduled = Event(EventKind.SCHEDULED, 0, 10.5)
    stats.step(Finished(10.5, 11.0, 1, 1, 100, (scheduled, Event(EventKind.TOKEN, 0, 11.0))))
    done = (Event(EventKind.TOKEN, 0, 11.25), Event(EventKind.FINISHED, 0, 11.25))
    stats.step(Finished(11.0, 11.25, 1, 1, 0, done))
    moved = {key: value - before[key] for key, value in values(twin(stats).values()).items()}
    own = (("engine", "0"), ("model_name", "tiny-llama"))
    for name, expected in {
        "vllm:prompt_tokens_total": 100,
        "vllm:generation_tokens_total": 2,
        "vllm:time_to_first_token_seconds_sum": 1.0,
        "vllm:inter_token_latency_seconds_sum": 0.25,
        "vllm:inter_token_latency_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_sum": 1.25,
        "vllm:request_queue_time_seconds_sum": 0.5,
        "vllm:request_prefill_time_seconds_sum": 0.5,
        "vllm:request_decode_time_seconds_sum": 0.25,
        "vllm:request_time_per_output_token_seconds_sum": 0.25,
        "vllm:request_generation_tokens_sum": 2,
        "vllm:iteration_tokens_total_count": 2,
    }.items():
        assert moved[name, own] == pytest.approx(expected), name


def test_a_caller_who_left_is_counted_as_abort_and_in_no_latency() -> None:
    stats = Stats()
    stats.arrive(0, Life(100, 50, 10.0))
    assert stats.finished["abort"] == 0
    stats.give_up(0)
    assert stats.finished["abort"] == 1
    assert stats.histograms["e2e_request_latency_seconds"].counts == [0] * 22


def test_a_value_on_an_edge_counts_below_it() -> None:
    histogram = Stats().histograms["time_to_first_token_seconds"]
    histogram.observe(0.1)
    assert dict(histogram.cumulative())["0.1"] == 1.0
    assert dict(histogram.cumulative())["0.08"] == 0.0
