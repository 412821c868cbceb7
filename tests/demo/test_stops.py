"""The demonstration, broken off: stopped early, killed, or refused before anything starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from controlplane.demo import stage
from controlplane.demo.processes import DemoError
from controlplane.demo.stage import Wish, check
from controlplane.ports import InvalidConfig
from tests.demo.running import DEMO, ROOT, mentions, needs_servers
from tests.support import eventually, start, stop


@pytest.mark.real
@needs_servers
@pytest.mark.parametrize(
    ("moment", "number"), [("the twin:", signal.SIGINT), ("traffic flows", signal.SIGTERM)]
)
def test_stopped_early_it_leaves_no_process_and_still_reports(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """RUNTIME. Whether it is stopped while it starts or while traffic flows."""
    report, keep, log = tmp_path / "report.json", tmp_path / "files", tmp_path / "log"
    process = start([*DEMO, "--report", report, "--keep", keep], log, cwd=ROOT)
    try:
        eventually(lambda: moment in log.read_text("utf-8") or process.poll() is not None, 60.0)
        assert mentions(keep)
        process.send_signal(number)
        assert process.wait(60) == 0, log.read_text("utf-8")
    finally:
        stop(process, 30.0)
    assert mentions(tmp_path) == []
    told = json.loads(report.read_text("utf-8"))
    assert (told["complete"], told["processes_left"]) == (False, 0)


@pytest.mark.real
@needs_servers
def test_a_process_that_dies_ends_it_with_its_last_words(tmp_path: Path) -> None:
    keep, log = tmp_path / "files", tmp_path / "log"
    process = start([*DEMO, "--keep", keep], log, cwd=ROOT)
    try:
        eventually(lambda: "HAProxy at" in log.read_text("utf-8"), 60.0)
        victim = next(
            int(each.parent.name)
            for each in Path("/proc").glob("[0-9]*/cmdline")
            if str(keep / "gateway" / "haproxy.cfg").encode() in each.read_bytes()
        )
        os.kill(victim, signal.SIGKILL)
        assert process.wait(90) == 1
    finally:
        stop(process, 30.0)
    assert "haproxy was killed by signal 9" in log.read_text("utf-8")
    assert mentions(tmp_path) == []


def test_a_trace_with_a_bad_row_is_told_before_anything_starts(tmp_path: Path) -> None:
    """RUNTIME: file, line, value and what is allowed; no process, no folder."""
    trace = tmp_path / "bad.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,100,20\n1.0,-7,20\n", encoding="utf-8")
    keep = tmp_path / "files"
    said = _run("--trace", str(trace), "--keep", str(keep))
    assert said.returncode == 1
    assert "bad.csv" in said.stderr
    assert "-7" in said.stderr
    assert "the twin:" not in said.stdout
    assert list(keep.iterdir()) == []


def test_files_that_are_removed_are_said_to_be(tmp_path: Path) -> None:
    """A run that fails names them too, and then they are gone."""
    fails, keep = ("--trace", str(tmp_path / "absent.csv")), tmp_path / "files"
    said = _run(*fails)
    line = next(each for each in said.stdout.splitlines() if each.startswith("files: "))
    folder, removed, hint = line.removeprefix("files: ").partition(", removed at the end")
    assert (bool(removed), "--keep DIR" in hint, Path(folder).exists()) == (True, True, False)
    assert f"files: {keep}\n" in _run(*fails, "--keep", str(keep)).stdout
    assert keep.is_dir()


@needs_servers
def test_a_missing_binary_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = Wish("small", 60.0, None, 1)
    assert all(each.exists() for each in check(wish))

    def absent(name: str) -> Path:
        raise InvalidConfig([f"{name} is not here; run `make setup`"])

    monkeypatch.setattr(stage, "find", absent)
    with pytest.raises(InvalidConfig, match="prometheus-alertmanager is not here"):
        check(wish)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_record_that_exists_is_refused_and_left_as_it_is(tmp_path: Path, end: str) -> None:
    """It may be all there is of a fleet's history, such as var/trimtab.db."""
    record = tmp_path / f"report.db{end}"
    record.write_text("history", encoding="utf-8")
    with pytest.raises(DemoError, match=f"{record} exists already; allowed: another name for the report"):
        check(Wish("small", 60.0, None, 1, tmp_path / "report.db"))
    assert record.read_text("utf-8") == "history"


def test_a_report_whose_record_exists_starts_nothing(tmp_path: Path) -> None:
    record = tmp_path / "report.db"
    record.symlink_to(tmp_path / "elsewhere.db")
    said = _run("--report", str(tmp_path / "report.json"), "--trace", str(tmp_path / "absent.csv"))
    assert said.returncode == 1
    assert f"{record} exists already" in said.stderr
    assert "the twin:" not in said.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["report.db"]


def test_a_folder_with_an_older_run_in_it_is_refused(tmp_path: Path) -> None:
    """Its series would be taken for this run's."""
    (tmp_path / "old").write_text("", encoding="utf-8")
    said = _run("--keep", str(tmp_path))
    assert said.returncode == 1
    assert "is not empty" in said.stderr


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *options], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
