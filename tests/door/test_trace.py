"""The trace that the door writes: whole rows, a header in each file, and nothing secret."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from controlplane.door.line import parse
from controlplane.door.trace import COLUMNS, TraceFile
from controlplane.ports import InvalidConfig
from tests.door.test_line import raw


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as source:
        return list(csv.DictReader(source))


def test_a_row_says_when_how_long_and_what_came_of_it(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "door.csv")
    trace.write(parse(raw()))
    trace.write(parse(raw(arrived_ms="1800000002500", wait_ms=-1, status=503, termination="PR--")))
    trace.close()
    first, second = rows(tmp_path / "door.csv")
    assert (first["arrival_s"], second["arrival_s"]) == ("0.000", "2.500")
    assert (first["wait_s"], first["outcome"], first["prompt_tokens"]) == ("0.012", "ok", "")
    assert (second["wait_s"], second["outcome"]) == ("", "refused")


def test_files_rotate_each_with_its_header_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "door.csv"
    trace = TraceFile(path, most_bytes=2000, keep=2)
    for _ in range(200):
        trace.write(parse(raw()))
    trace.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["door.csv", "door.csv.1", "door.csv.2"]
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 2000
        assert tuple(rows(each)[0]) == COLUMNS


def test_a_trace_is_appended_to_without_a_second_header(tmp_path: Path) -> None:
    path = tmp_path / "door.csv"
    for _ in range(2):
        trace = TraceFile(path)
        trace.write(parse(raw()))
        trace.close()
    assert [each["status"] for each in rows(path)] == ["200", "200"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not on this system")
def test_a_full_disk_costs_rows_which_are_counted_and_nothing_else() -> None:
    trace = TraceFile(Path("/dev/full"))
    assert trace.unwritten == 0
    trace.write(parse(raw()))
    trace.write(parse(raw()))
    assert trace.unwritten == 2
    trace.close()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"nowhere/door\.csv cannot be written"):
        TraceFile(tmp_path / "nowhere" / "door.csv")
