"""`/metrics` of the twin against a recorded scrape of the real engine, family by family."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

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
