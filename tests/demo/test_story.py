"""The whole demonstration, for real: started as anybody starts it, and nothing left afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.demo.running import DEMO, ROOT, mentions, needs_servers
from tests.support import start, stop

STARVED_S = 0.1
"""Lateness at which twin and generator, and so the speeds that are measured, are no longer what they say: a
quiet machine of two cores has some milliseconds."""


@pytest.mark.real
@pytest.mark.timeout(360)
@needs_servers
def test_a_short_demonstration_reports_and_leaves_nothing(tmp_path: Path) -> None:
    """RUNTIME. Requests, decisions, pushes, loans, drains and all four failures are in the report; nothing
    shrank while the metrics were away, no stream was cut and no GPU is unaccounted for."""
    report, keep = tmp_path / "report.json", tmp_path / "files"
    process = start([*DEMO, "--report", report, "--keep", keep], tmp_path / "log", cwd=ROOT)
    try:
        assert process.wait(300) == 0, (tmp_path / "log").read_text("utf-8")
    finally:
        stop(process, 30.0)
    assert mentions(tmp_path) == []
    told = json.loads(report.read_text("utf-8"))
    assert told["complete"] is True
    assert told["requests"]["failed"] == 0
    assert told["requests"]["ok"] > 100
    assert told["processes_left"] == 0
    assert told["gpus_unaccounted"] == 0
    assert told["drains"]["streams_cut"] == 0
    assert told["loans"]["opened"] == told["loans"]["closed"] + told["loans"]["open"]
    assert told["decisions"]["weights_held"] > 0
    if told["lag_p99_s"] is not None and told["lag_p99_s"] < STARVED_S:
        assert told["pushes"] > 0
        assert told["story"]["throttle"]["weight_after"] < told["story"]["throttle"]["weight_before"]
        assert told["loans"]["opened"] > 0
        assert told["story"]["surge"]["first_borrowed_answer_s"] is not None
    assert list(told["story"]["prometheus"]) == ["stopped", "hanging", "empty", "half"]
    for seen in told["story"]["prometheus"].values():
        assert (seen["shrinks"], seen["weight_changes"]) == (0, 0)
    assert told["exporter"]["lost"] == told["exporter"]["malformed"] == 0
    assert told["door"]["ok"] == told["requests"]["ok"], "each answer was a line"
    assert told["door"]["cut"] == told["door"]["failed"] == 0
    _same_at_both_ends(told)
    _replays(tmp_path / "report.db")


def _replays(database: Path) -> None:
    """Every decision of the run is computed again, in a fresh process, and comes out the same."""
    again = [sys.executable, "-m", "controlplane", "replay", "--all", "--json", "--database", str(database)]
    said = subprocess.run(again, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert said.returncode == 0, said.stdout + said.stderr
    assert json.loads(said.stdout)["replayed"] > 10


def _same_at_both_ends(told: dict[str, Any]) -> None:
    """Callers and the door each held a watch of their own: they differ by what is between them."""
    callers = told["latency"]["all"]
    for at_door, measured in (("p95_s", "total_s"), ("ttft_p95_s", "ttft_s")):
        assert told["door"][at_door] == pytest.approx(callers[measured]["p95"], rel=0.2, abs=0.1)
