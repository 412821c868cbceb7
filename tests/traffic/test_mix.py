"""Mixes: one closed form for file and command line, with all that is wrong at once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.traffic.client import Client, Retry
from controlplane.traffic.mix import MixError, load_mix, parse_mix, prepare, with_seed
from controlplane.traffic.scale import peak_offered
from controlplane.traffic.schedule import merged


def mix(*entries: dict[str, Any]) -> str:
    return json.dumps(list(entries))


def test_the_least_entry_plays_the_seeded_chat_shape() -> None:
    [part] = prepare(parse_mix(mix({"model": "m"}), "mix"), 120)
    assert part.source == "seeded chat, seed 0"
    assert part.report()["copies"] == 1
    assert len(part.played.trace) > 300


def test_a_trace_s_path_counts_from_the_mix_s_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n5,2,2\n")
    path = tmp_path / "mix.json"
    path.write_text(mix({"model": "m", "trace": "t.csv", "from": 0}))
    [part] = prepare(load_mix(path), 6)
    assert part.played.trace.prompt_tokens.tolist() == [1, 2]


def test_a_peak_in_instances_and_a_context_are_kept_together() -> None:
    """The cost is that of the lengths as they will be sent, after the cut."""
    peak = {"capacity": 4.0, "cost": {"output": 0.01, "prompt": 0.001}}
    [part] = prepare(parse_mix(mix({"model": "m", "max_context": 1500, "peak": peak}), "mix"), 300)
    trace = part.played.trace
    assert int((trace.prompt_tokens + trace.output_tokens).max()) <= 1500
    assert part.clipped > 0
    sent = peak_offered(trace, 60, lambda t: 0.01 * t.output_tokens + 0.001 * t.prompt_tokens)
    assert sent == pytest.approx(part.played.peak)
    assert 3.2 < sent <= 3.4


def test_models_are_merged_in_order_of_arrival() -> None:
    parts = prepare(parse_mix(mix({"model": "a"}, {"model": "b", "seeded": {"seed": 9}}), "mix"), 60)
    schedule = merged([(part.model, part.played.trace) for part in parts])
    sent = list(schedule)
    assert len(sent) == sum(len(part.played.trace) for part in parts)
    assert [request.due_s for request in sent] == sorted(request.due_s for request in sent)
    assert {request.model for request in sent} == {"a", "b"}


def test_everything_wrong_with_a_mix_is_said_at_once_with_its_place() -> None:
    text = mix(
        {"model": "", "speed": 2, "jitter_s": 1e308},
        {"model": "m", "copies": -1, "seeded": {"shape": "chatty"}},
        {"model": "m", "peak": {"capacity": 0, "cost": {"prompt": 0}}},
        {"model": "m", "copies": 2, "peak": {"capacity": 1}},
        {"model": "m", "trace": "t.csv", "seeded": {}},
        {"trace": 7},
        {"model": "m", "retry": {"attempts": 0, "wait_s": -1, "backoff": 2}},
        {"model": "m", "retry": 3, "hash": "yes"},
    )
    with pytest.raises(MixError) as caught:
        parse_mix(text, "mix.json")
    places = [problem.split(": ")[1] for problem in caught.value.problems]
    assert places == [
        "[0].model",
        "[0].jitter_s",
        "[0].speed",
        "[1].seeded.shape",
        "[1].copies",
        "[2].peak.capacity",
        "[2].peak.cost",
        "[3]",
        "[4]",
        "[5].model",
        "[5].trace",
        "[6].retry.attempts",
        "[6].retry.wait_s",
        "[6].retry.backoff",
        "[7].retry",
        "[7].hash",
    ]
    assert all(problem.startswith("mix.json: ") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        ({"attempts": 101}, "x: [0].retry.attempts: Input should be less than or equal to 100 (it is 101)"),
        ({"attempts": 2, "wait_s": 3601}, "wait_s: Input should be less than or equal to 3600 (it is 3601)"),
        ({"wait_s": 1}, "x: [0].retry.attempts: Field required"),
    ],
)
def test_a_retry_out_of_range_is_named_with_its_value_and_the_range(retry: dict[str, Any], said: str) -> None:
    with pytest.raises(MixError) as caught:
        parse_mix(mix({"model": "m", "retry": retry}), "x")
    assert said in str(caught.value)


def test_each_request_has_the_client_of_its_own_entry() -> None:
    """Two entries may even name the same model."""
    offline = {"model": "m", "seeded": {"seed": 1}, "retry": {"attempts": 8}, "hash": True}
    parts = prepare(parse_mix(mix({"model": "m"}, offline), "mix"), 60)
    sent = list(merged([(part.model, part.played.trace) for part in parts], [part.client for part in parts]))
    assert Counter(request.client for request in sent) == {
        Client(): len(parts[0].played.trace),
        Client(Retry(8, 1.0), hashed=True): len(parts[1].played.trace),
    }
    assert [part.report()["attempts"] for part in parts] == [1, 8]
    assert [request.number for request in sent] == list(range(len(sent)))


def test_a_play_s_seed_is_that_of_what_is_drawn_and_names_none() -> None:
    entries = parse_mix(
        mix({"model": "a"}, {"model": "b", "seeded": {"seed": 0}}, {"model": "c", "trace": "t.csv"}), "x"
    )
    assert [entry.seeded.seed for entry in with_seed(entries, 9) if entry.seeded] == [9, 0]
    assert with_seed(entries, 9)[1:] == entries[1:]


def first_second(**seeded: Any) -> int:
    """Requests in the first of sixty seconds at 4000 requests/s."""
    entries = parse_mix(mix({"model": "m", "seeded": {"rate": 4000, **seeded}}), "x")
    return int((prepare(entries, 60)[0].played.trace.arrival_s < 1.0).sum())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_steady_crowd_is_there_from_the_first_second_on(seed: int) -> None:
    """Within five standard deviations of a Gamma renewal count; the shape's own course begins at 70 %."""
    deviation = 1.09 * 4000**0.5
    assert abs(first_second(seed=seed) - 2800) < 5 * deviation
    assert abs(first_second(seed=seed, steady=True) - 4000) < 5 * deviation


@pytest.mark.parametrize("shape", ["day", "batch"])
def test_steady_traffic_of_any_shape_keeps_its_rate(shape: str) -> None:
    [part] = prepare(parse_mix(mix({"model": "m", "seeded": {"shape": shape, "steady": True}}), "x"), 1200)
    by_quarter = np.histogram(part.played.trace.arrival_s, 4, (0.0, 1200.0))[0]
    assert np.all(np.abs(by_quarter - 300 * 5.53) < 5 * 1.09 * (300 * 5.53) ** 0.5)
    assert part.source == f"seeded {shape}, seed 0, steady"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "[1]"])
def test_what_is_no_mix_is_refused(text: str) -> None:
    with pytest.raises(MixError, match="mix"):
        parse_mix(text, "mix")


def test_an_absent_mix_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MixError, match="No such file"):
        load_mix(tmp_path / "none.json")


def test_a_mix_that_is_a_pipe_a_device_or_a_folder_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        with pytest.raises(MixError, match=f"{place}: is no plain file, allowed: a file"):
            load_mix(place)


def test_the_problems_of_all_traces_come_together(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("arrival_s,prompt_tokens,output_tokens\n0,0,1\n1,1,-1\n")
    text = mix(
        {"model": "a", "trace": str(bad)},
        {"model": "b", "trace": str(tmp_path / "none.csv")},
        {"model": "c", "from": 10_000},
    )
    with pytest.raises(MixError) as caught:
        prepare(parse_mix(text, "mix"), 60)
    assert len(caught.value.problems) == 4


def test_batch_work_that_ends_before_the_window_does_is_not_begun_again() -> None:
    """The last of six bursts ends at 21:00, and the first began at midnight."""
    entries = parse_mix('[{"model": "m", "seeded": {"shape": "batch", "rate": 5}}]', "x")
    part = prepare(entries, 600.0)[0]
    assert part.played.repeats == 1
    assert part.played.trace.arrival_s[-1] < 600.0 * 21 / 24 + 0.1
    assert part.played.trace.arrival_s[-1] > 600.0 * 20.5 / 24


def test_a_file_whose_last_request_comes_early_still_repeats(tmp_path: Path) -> None:
    """A file says nothing about the silence after its last request."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n2.5,1,1\n")
    entries = parse_mix(mix({"model": "m", "trace": str(tmp_path / "t.csv")}), "x")
    assert prepare(entries, 9.0)[0].played.repeats == 3
