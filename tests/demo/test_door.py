"""What the report says of the door: from the trace, and from the exporter's own counts."""

from __future__ import annotations

from pathlib import Path

from controlplane.demo.door import TRACE, counts, figures, rows
from controlplane.door.line import parse
from controlplane.door.trace import TraceFile
from tests.door.test_line import raw
from tests.support import free_port


def test_percentiles_are_of_whole_answers_and_the_rest_is_counted(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / TRACE)
    for number in range(1, 101):
        trace.write(parse(raw(total_ms=number * 10, ttft_ms=str(number))))
    trace.write(parse(raw(termination="SD--", total_ms=60_000)))
    trace.write(parse(raw(termination="PR--", status=503, total_ms=0, ttft_ms="")))
    trace.close()
    found = figures(rows(tmp_path), {"lines_total": 102.0, "lost_lines_total": 0.0})
    assert found["door"]["p95_s"] == 0.9505
    assert found["door"]["ttft_p95_s"] == 0.09505
    assert (found["door"]["ok"], found["door"]["cut"], found["door"]["refused"]) == (100, 1, 1)
    assert (found["exporter"]["lines"], found["exporter"]["lost"]) == (102, 0)


def test_what_offline_work_gave_up_is_made_again_and_is_no_failure(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / TRACE)
    for termination, status in (("SD--", 200), ("SC--", 503), ("--", 200)):
        trace.write(parse(raw(termination=termination, status=status)))
    trace.close()
    traced = rows(tmp_path)
    pool = traced[0]["pool"]
    online, offline = (figures(traced, {}, pools)["door"] for pools in ((), (pool,)))
    assert (online["ok"], online["failed"] + online["cut"], online["offline_retried"]) == (1, 2, 0)
    assert (offline["ok"], offline["failed"] + offline["cut"], offline["offline_retried"]) == (1, 0, 2)


def test_rotated_files_are_read_too(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / TRACE, most_bytes=1000, keep=3)
    for _ in range(20):
        trace.write(parse(raw()))
    trace.close()
    assert len(list(tmp_path.iterdir())) > 1
    assert len(rows(tmp_path)) == 20


def test_an_exporter_that_does_not_answer_said_nothing_rather_than_zero(tmp_path: Path) -> None:
    found = figures(rows(tmp_path), counts(free_port(), timeout_s=0.5))
    assert found["exporter"] == {"lines": None, "lost": None, "malformed": None}
    assert found["door"]["p95_s"] is None
