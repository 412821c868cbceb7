"""Results as figures: by phase, with ordered faults apart, and never a number for nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.traffic.results import Outcome, Result, ResultsError, ResultWriter, read_results
from controlplane.traffic.summary import OrderedFault, Phase, by_phase, counts, errors, latency, quantiles

OK = Result(
    sent_s=0.0,
    sent_at=1000.0,
    model="llama-3.1-8b",
    status=200,
    outcome=Outcome.OK,
    ttft_s=0.1,
    total_s=2.0,
    tokens=8,
    instance="chat-8b-03",
    lateness_s=0.001,
    prompt_tokens=100,
    output_tokens=8,
    error=None,
)
FAILED = replace(OK, outcome=Outcome.FAILED, tokens=None, error="ClientPayloadError: cut")
NAMELESS = replace(FAILED, instance=None, status=None, ttft_s=None)
FAULT = OrderedFault("chat-8b-03", from_at=1001.0, to_at=1010.0, model="llama-3.1-8b")


def test_each_request_counts_once() -> None:
    found = counts(
        [OK, FAILED, replace(OK, outcome=Outcome.REFUSED), replace(OK, outcome=Outcome.UNFINISHED)]
    )
    by_outcome = {"ok": 1, "refused": 1, "failed": 1, "faulted": 0, "unfinished": 1}
    assert found == {"sent": 4, **by_outcome, "retried": 0}


@st.composite
def results(draw: st.DrawFn) -> list[Result]:
    """Requests that ended in any way, after any number of attempts."""
    ended = st.tuples(st.sampled_from(Outcome), st.integers(1, 9), st.sampled_from(["chat-8b-03", None]))
    return [
        replace(OK, outcome=outcome, attempts=attempts, instance=instance, sent_at=1000.0 + at)
        for at, (outcome, attempts, instance) in enumerate(draw(st.lists(ended, max_size=30)))
    ]


@given(results(), st.none() | st.integers(0, 9))
def test_attempts_that_were_given_up_are_in_no_other_count(found: list[Result], broken: int | None) -> None:
    counted = counts(found, [FAULT], broken)
    parts = [counted[name] for name in ("ok", "refused", "failed", "faulted", "unfinished")]
    assert sum(parts) == counted["sent"] == len(found)
    assert min(parts) >= 0
    assert counted["retried"] == sum(result.attempts for result in found) - len(found) >= 0
    once = [replace(result, attempts=1) for result in found]
    assert counts(once) == {**counts(found), "retried": 0}
    assert counts(once, [FAULT], broken)["faulted"] >= counted["faulted"]


@pytest.mark.parametrize(
    ("result", "faulted"),
    [
        (FAILED, 1),  # sent at 1000, ended at 1002: open when the fault began at 1001
        (replace(FAILED, sent_at=998.9), 0),  # ended before the fault
        (replace(FAILED, sent_at=1010.0), 1),
        (replace(FAILED, sent_at=1010.1), 0),  # sent after the fault
        (replace(FAILED, instance="chat-8b-04"), 0),  # another instance
        (OK, 0),
        (NAMELESS, 0),  # nobody's word that the fault did it
    ],
)
def test_a_failure_is_a_fault_s_only_where_the_answer_names_its_slot_in_its_time(
    result: Result, faulted: int
) -> None:
    found = counts([result], [FAULT])
    assert found["faulted"] == faulted
    assert found["failed"] == (result.outcome is Outcome.FAILED) - faulted


@pytest.mark.parametrize(("broken", "faulted"), [(None, 1), (0, 1), (1, 1), (2, 2), (3, 3), (99, 3)])
def test_nameless_failures_are_a_fault_s_only_as_far_as_the_twin_s_own_count_goes(
    broken: int | None, faulted: int
) -> None:
    results = [FAILED, NAMELESS, NAMELESS, replace(NAMELESS, model="eval-8b")]
    assert counts(results, [FAULT], broken)["faulted"] == faulted
    assert counts(results, [FAULT], broken)["failed"] == 4 - faulted


def test_an_attempt_that_was_given_up_excuses_no_other_request() -> None:
    """The twin counted it as broken, and its client made it again."""
    again = replace(OK, attempts=2)
    assert counts([OK, NAMELESS, NAMELESS], [FAULT], 2)["faulted"] == 2
    assert counts([again, NAMELESS, NAMELESS], [FAULT], 2)["faulted"] == 1
    assert counts([again, FAILED], [FAULT], 1)["faulted"] == 1, "its answer names the slot"
    elsewhere = replace(again, model="eval-8b")
    assert counts([elsewhere, NAMELESS, NAMELESS], [FAULT], 2)["faulted"] == 2


def test_a_fault_without_an_end_lasts() -> None:
    assert counts([replace(FAILED, sent_at=9e9)], [replace(FAULT, to_at=None)])["faulted"] == 1


def test_a_phase_holds_what_was_sent_in_it_and_an_empty_one_has_nulls() -> None:
    phases = [Phase("before", 990, 1000), Phase("during", 1000, 1010)]
    found = by_phase([OK, replace(OK, sent_at=1009.9, total_s=4.0), replace(OK, sent_at=1010.0)], phases)
    assert found["before"]["requests"]["sent"] == 0
    assert found["before"]["latency"]["total_s"] == {"n": 0, "p50": None, "p95": None, "p99": None}
    assert found["during"]["requests"]["sent"] == 2
    assert found["during"]["latency"]["total_s"] == {"n": 2, "p50": 2.0, "p95": 4.0, "p99": 4.0}


def test_latency_is_of_whole_answers_alone_and_says_how_many() -> None:
    """B-049: a failed request has no latency here, and is not forgotten: the counts stand beside it."""
    found = latency([OK, replace(FAILED, total_s=900.0)])
    assert found["total_s"]["n"] == 1
    assert found["total_s"]["p99"] == 2.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_quantiles_are_ordered_and_really_occurred(values: list[float]) -> None:
    found = quantiles(values)
    assert found["p50"] is not None
    assert found["p95"] is not None
    assert found["p99"] is not None
    assert min(values) <= found["p50"] <= found["p95"] <= found["p99"] <= max(values)
    assert {found["p50"], found["p95"], found["p99"]} <= set(values)


def test_the_commonest_errors_come_first() -> None:
    other = replace(FAILED, error="HTTP 500")
    assert list(errors([OK, other, FAILED, FAILED]).items()) == [
        ("ClientPayloadError: cut", 2),
        ("HTTP 500", 1),
    ]


def test_results_are_read_back_as_written_and_a_half_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with path.open("w") as file:
        write = ResultWriter(file)
        write(OK)
        write(NAMELESS)
        file.write('{"sent_s": 3.')
    assert read_results(path) == [OK, NAMELESS]


def test_a_file_from_before_clients_came_back_is_still_read(tmp_path: Path) -> None:
    """Each of its requests was tried once, and nobody hashed its text."""
    path = tmp_path / "results.jsonl"
    row = asdict(OK)
    for name in ("attempts", "sha256", "request_id"):
        del row[name]
    path.write_text(json.dumps(row) + "\n")
    [result] = read_results(path)
    assert (result.attempts, result.sha256, result.request_id) == (1, None, None)


@pytest.mark.parametrize("line", ["{}", "[]", "7", "nonsense", '{"outcome": "grand"}'])
def test_a_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ResultsError, match=r"results\.jsonl:line 1: not a result"):
        read_results(path)
