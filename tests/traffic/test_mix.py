"""Mixes: one closed form for file and command line, with all that is wrong at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.traffic.mix import MixError, load_mix, parse_mix, prepare
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
    ]
    assert all(problem.startswith("mix.json: ") for problem in caught.value.problems)


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
