"""The live view shows what is recorded, and a dash for what is not known."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from controlplane.demo.scene import Apart, Decided, PoolRow, Scene, instances_apart, pool_rows
from controlplane.demo.view import picture, svg
from controlplane.demo.watch import Tail
from controlplane.domain.forecast import Forecast
from controlplane.domain.state import State
from controlplane.ports import Frame
from tests import builders

ROW = PoolRow("chat-8b", 12, 12, 1.0, 55, 3, 2, 4.25, 0.51, "door", 0.77, 0.12, None)
SCENE = Scene("a healthy fleet", "weights alike", 12.0, 120.0, pools=[ROW])


def drawn(scene: Scene) -> str:
    console = Console(file=io.StringIO(), width=118, record=True)
    console.print(picture(scene))
    return console.export_text()


def frame() -> Frame:
    policies = builders.policies(builders.pool_policy())
    return Frame(builders.steady_pool(), policies, State(), Forecast(made_at=builders.NOW))


def test_the_phase_and_what_to_look_at_come_first() -> None:
    text = drawn(SCENE)
    assert "12 of 120 s" in text
    assert text.index("a healthy fleet") < text.index("weights alike") < text.index("chat-8b")


def test_what_is_not_known_is_a_dash_and_zero_is_zero() -> None:
    row = next(line for line in drawn(SCENE).splitlines() if "chat-8b" in line)
    assert row.count("–") == 1
    row = next(
        line
        for line in drawn(replace(SCENE, pools=[replace(ROW, queue=0)])).splitlines()
        if "chat-8b" in line
    )
    assert " 0 " in row


def test_without_an_end_only_the_elapsed_time_is_shown() -> None:
    assert "12 s" in drawn(replace(SCENE, duration_s=None))
    assert "of" not in drawn(replace(SCENE, duration_s=None)).splitlines()[0]


def test_instances_are_shown_only_where_they_differ() -> None:
    assert "instances that differ" not in drawn(SCENE)
    text = drawn(replace(SCENE, apart=[Apart("chat-8b-03", 41, 3, 2, 0.4)]))
    assert "chat-8b-03" in text
    assert "41" in text


def test_decisions_are_shown_with_their_why() -> None:
    text = drawn(
        replace(SCENE, decided=[Decided(0.0, "chat-8b sends less to chat-8b-03 because it is slow.")])
    )
    assert "because it is slow" in text


def test_the_drawing_is_svg_and_has_the_pools() -> None:
    text = svg(SCENE)
    assert text.startswith("<svg")
    assert "chat-8b" in text


def test_a_recorded_frame_becomes_rows() -> None:
    rows = pool_rows(frame(), frame())
    assert [row.pool for row in rows] == ["chat-8b"]
    assert rows[0].seen == 1.0
    assert rows[0].running is not None


def test_before_the_first_cycle_there_is_no_row() -> None:
    assert pool_rows(None, None) == ()
    assert instances_apart(None) == ()


def test_results_files_are_followed_without_their_unfinished_lines(tmp_path: Path) -> None:
    path, other = tmp_path / "results-0.jsonl", tmp_path / "results-1.jsonl"
    line = json.dumps({"outcome": "ok", "lateness_s": 0.25})
    tail = Tail()
    tail.read([path, other])
    assert not tail.counts
    path.write_text(f"{line}\n{line[:10]}", encoding="utf-8")
    tail.read([path, other])
    assert tail.words() == "1 ok"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line[10:]}\n")
    other.write_text(f"{line}\n", encoding="utf-8")
    tail.read([path, other])
    assert tail.words() == "3 ok"
    assert list(tail.lateness) == [0.25] * 3


def test_loans_and_pages_are_counted_below() -> None:
    last = drawn(SCENE).splitlines()[-1]
    assert "loans: none" in last
    assert "pages: none" in last
    moved = replace(SCENE, loans={"opened": 4, "closed": 1, "open": 3}, pages={"fired": 1, "resolved": 0})
    last = drawn(moved).splitlines()[-1]
    assert "loans: 4 opened, 1 closed, 3 open" in last
    assert "pages: 1 fired, 0 resolved" in last
