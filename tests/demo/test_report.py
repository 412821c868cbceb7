"""The report says what happened, and nothing that is not known."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.demo.act import Mark
from controlplane.demo.processes import DemoError
from controlplane.demo.record import Told
from controlplane.demo.report import Material, figures, shrinks
from controlplane.demo.timeline import Deed, story
from controlplane.demo.write import writable, write
from controlplane.domain.explanation import Explanation, Input, Step, Vote
from controlplane.domain.ids import CycleId, CycleKind, InstanceId, PoolName
from controlplane.domain.plan import Action, ActionKind, Decision, Outcome, Plan
from controlplane.domain.policy import Mode, PolicyVersion
from controlplane.domain.readings import Cause, Missing
from controlplane.traffic.results import Outcome as Ended
from controlplane.traffic.results import Result
from tests import builders

T0 = 1_000_000.0
POOL = PoolName("chat-8b")
SLOT = "chat-8b-03"
PHASES = {phase.name: phase for phase in story(100.0)}
SLOWED_S = PHASES["throttled"].from_s


def mark(name: str, effective_s: float | None = None) -> Mark:
    phase = PHASES[name]
    effective = None if effective_s is None else T0 + phase.from_s + effective_s
    return Mark(phase, T0 + phase.from_s, T0 + phase.to_s, effective)


def told(
    at_s: float,
    kind: CycleKind = CycleKind.WEIGHTS,
    *,
    weight: tuple[int, int] | None = None,
    size: tuple[float, float] | None = None,
    imbalance: float | None = None,
) -> Told:
    inputs = (Input("imbalance_busyness", imbalance, "ratio"),)
    steps = (Step("imbalance", "imbalance_shown", Vote.ABSTAIN, inputs),)
    actions: tuple[Action, ...] = ()
    if weight is not None:
        target = InstanceId(f"demo/{SLOT}@abc")
        actions = (
            Action(ActionKind.SET_WEIGHT, POOL, "door", target, weight[1], weight[0], "speed_differs"),
        )
    explanation = Explanation(steps, "speed", "speed_differs", *(size or (None, None)))
    outcome = Outcome.CHANGE if actions else Outcome.NOTHING_TO_DO
    decision = Decision(POOL, Mode.AUTO, outcome, actions, explanation)
    plan = Plan(kind, PolicyVersion("", "hash"), {POOL: decision})
    return Told(CycleId("demo", kind, int(at_s * 10) + 1), T0 + at_s, plan, Missing(Cause.NOT_ASKED))


def result(at_s: float, outcome: Ended = Ended.OK, instance: str | None = "chat-8b-01") -> Result:
    return Result(at_s, T0 + at_s, "llama-3.1-8b", 200, outcome, 0.1, 1.0, 5, instance, 0.0, 10, 5, None)


def material(**changes: Any) -> Material:
    empty = Material([], [], 0, [], "", {}, [], "llama-3.1-8b")
    return replace(empty, **changes)


def test_nothing_known_is_none_and_not_zero() -> None:
    found = figures(material())
    assert found["lag_p99_s"] is None
    assert found["gpus_unaccounted"] is None
    assert found["imbalance"]["busyness"] == {"healthy": None, "before": None, "after": None}
    assert found["requests"]["sent"] == 0


def test_the_worst_lateness_counts_whoever_was_late() -> None:
    on_time = [{"lag_p99_s": 0.01, "loop_lag_p99_s": 0.02}]
    assert figures(material(summaries=on_time, truth={"lag_p99_s": 0.01}))["lag_p99_s"] == 0.02
    assert figures(material(summaries=on_time, truth={"lag_p99_s": 0.5}))["lag_p99_s"] == 0.5
    assert figures(material(summaries=on_time))["lag_p99_s"] is None  # the twin did not say


def test_a_throttled_card_is_found_when_its_weight_first_drops_by_a_tenth() -> None:
    cycles = [
        told(10, weight=(99, 100)),
        told(SLOWED_S + 2, weight=(100, 95)),
        told(SLOWED_S + 5, weight=(95, 80)),
        told(SLOWED_S + 12, weight=(80, 50)),
    ]
    found = figures(material(cycles=cycles, marks=[mark("throttled", 0.0)], slot=SLOT))
    assert found["story"]["throttle"] == {
        "instance": SLOT,
        "weight_before": 100,
        "weight_after": 50,
        "weighted_down_after_s": 5.0,
    }


def test_a_card_that_was_never_weighted_down_has_no_time() -> None:
    found = figures(material(cycles=[told(SLOWED_S + 8)], marks=[mark("throttled", 0.0)], slot=SLOT))
    assert found["story"]["throttle"]["weighted_down_after_s"] is None


def test_imbalance_is_told_from_the_throttle_until_prometheus_is_lost() -> None:
    """A minute's window shows a slow card late, so the worst comes in the phase after its own."""
    began, over = PHASES["throttled"].from_s, PHASES["return"].to_s
    read = ((began - 1, 0.05), (began + 3, 0.2), (PHASES["surge"].from_s + 1, 0.6))
    last = ((over - 2, 0.3), (over - 1, 0.4), (over + 1, 0.9))
    cycles = [told(at, imbalance=value) for at, value in (*read, *last)]
    names = ("throttled", "surge", "return", "prometheus-stopped")
    whole = figures(material(cycles=cycles, marks=[mark(each, 0.0) for each in names], slot=SLOT))
    assert whole["imbalance"]["busyness"] == {"healthy": 0.05, "before": 0.6, "after": 0.35}
    stopped = figures(material(cycles=cycles, marks=[mark("throttled", 0.0)], slot=SLOT))
    assert stopped["imbalance"]["busyness"] == {"healthy": 0.05, "before": 0.2, "after": None}


def test_a_failure_counts_from_when_it_showed_until_it_was_mended() -> None:
    """Before it shows, decisions stand on whole readings: a change then is no fault."""
    one = mark("prometheus-empty", 4.0)
    start = one.phase.from_s
    early, late = told(start + 3, weight=(100, 90)), told(start + 4.5, weight=(90, 80))
    after = told(one.phase.to_s + 1, weight=(80, 70))
    seen = figures(material(cycles=[early, late, after], marks=[one]))["story"]["prometheus"]["empty"]
    assert seen == {"showed_after_s": 4.0, "cycles": 1, "shrinks": 0, "weight_changes": 1}


def test_a_failure_that_never_showed_proves_nothing_and_says_so() -> None:
    seen = figures(material(cycles=[told(90)], marks=[mark("prometheus-half")]))["story"]["prometheus"][
        "half"
    ]
    assert seen["showed_after_s"] is None
    assert seen["cycles"] == 0


def test_a_pool_that_is_wanted_smaller_is_a_shrink_even_where_it_is_only_recorded() -> None:
    assert shrinks(told(1, CycleKind.CAPACITY, size=(4.0, 4.0))) == 0
    assert shrinks(told(1, CycleKind.CAPACITY, size=(4.0, 5.0))) == 0
    assert shrinks(told(1, CycleKind.CAPACITY, size=(4.0, 3.0))) == 1


def test_a_request_that_an_ordered_fault_broke_is_no_failure() -> None:
    results = [result(1), result(2, Ended.FAILED, SLOT), result(2, Ended.FAILED, "chat-8b-09")]
    before = figures(material(results=results))["requests"]
    assert (before["failed"], before["faulted"]) == (2, 0)
    fault = {"slot": SLOT, "since": T0, "until": None, "cleared_at": None}
    truth = {"faults": [fault], "broken_requests": {SLOT: 1}}
    after = figures(material(results=results, truth=truth))["requests"]
    assert (after["failed"], after["faulted"]) == (1, 1)


def test_decisions_are_counted_by_kind_and_outcome() -> None:
    cycles = [told(1), told(2, weight=(100, 90)), told(3, CycleKind.CAPACITY)]
    assert figures(material(cycles=cycles))["decisions"] == {
        "capacity_nothing_to_do": 1,
        "weights_change": 1,
        "weights_nothing_to_do": 1,
    }


def test_gpus_are_accounted_over_every_inventory() -> None:
    good = builders.inventory(builders.instances(3))
    twice = replace(good, taken_at=good.taken_at + 1, instances=good.instances * 4)
    cycles = [replace(told(1), inventory=good)]
    assert figures(material(cycles=cycles))["gpus_unaccounted"] == 0
    cycles.append(replace(told(2), inventory=twice))
    assert figures(material(cycles=cycles))["gpus_unaccounted"] > 0


def test_latency_is_told_by_phase() -> None:
    found = figures(material(results=[result(5), result(8)], marks=[mark("warm-up"), mark("baseline")]))
    phases = found["latency"]["phases"]
    assert {name: each["latency"]["total_s"]["n"] for name, each in phases.items()} == {
        "warm-up": 1,
        "baseline": 1,
    }


def test_a_phase_that_has_not_ended_is_left_out() -> None:
    """RUNTIME: a demonstration may be stopped at any moment, and still reports."""
    open_mark = Mark(PHASES["throttled"], T0 + 22)
    found = figures(material(marks=[open_mark], slot=SLOT))
    assert found["latency"]["phases"] == {}
    assert found["story"]["throttle"] == {"instance": SLOT}


def test_a_report_replaces_the_old_one_at_once(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old", encoding="utf-8")
    write(path, {"complete": True})
    assert json.loads(path.read_text("utf-8")) == {"complete": True}
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_leaves_the_old_one_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.mkdir()
    with pytest.raises(DemoError, match=r"report\.json cannot be written"):
        write(path, {"complete": True})
    assert list(tmp_path.iterdir()) == [path]


def test_every_failure_of_the_story_is_reported() -> None:
    marks = [mark(name, 0.0) for name, phase in PHASES.items() if phase.deed is not Deed.NOTHING]
    found = figures(material(marks=marks, slot=SLOT))
    assert list(found["story"]["prometheus"]) == ["stopped", "hanging", "empty", "half"]


def test_a_report_s_place_is_checked_before_anything_starts_or_goes(tmp_path: Path) -> None:
    file, device = tmp_path / "file", tmp_path / "device.json"
    file.write_text("")
    os.mkfifo(device)
    for path, says in (
        (file / "x.json", "file is no folder"),
        (device, "is no plain file"),
        (tmp_path / "x.db", "the record takes that name"),
    ):
        with pytest.raises(DemoError, match=says):
            writable(path)
    assert device.is_fifo()
    writable(tmp_path / "new" / "x.json")
    assert not (tmp_path / "new" / "x.json").exists()
