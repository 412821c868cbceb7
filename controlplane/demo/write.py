"""The beginning and the end of a demonstration, in words and as a file."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.adapters.policyfiles.leaves import seconds
from controlplane.demo.fleet import CHARACTERS, STARRED, STATEMENT, pools_of
from controlplane.demo.machine import surroundings
from controlplane.demo.processes import DemoError
from controlplane.demo.record import RecordFile
from controlplane.demo.report import Material, figures
from controlplane.demo.run import Played
from controlplane.demo.stage import Wish
from controlplane.traffic.results import Result, read_results
from controlplane.twin.live.fleet import FLEETS, PoolPlan


def introduction(wish: Wish, folder: Path, *, kept: bool) -> str:
    """What is about to start, in what it differs from production, and whether its files stay."""
    pools = ", ".join(_standing(plan) for plan in FLEETS[wish.fleet][0])
    seats = max(plan.seats for plan in FLEETS[wish.fleet][0])
    traffic = f"the trace {wish.trace}" if wish.trace else "seeded chat traffic"
    return (
        f"starting on loopback: the twin ({pools}),\n"
        f"HAProxy, Prometheus, Alertmanager, the controller, and {traffic}\n"
        f"this is a demonstration: {STATEMENT}, at most {seats} sequences an instance\n"
        f"files: {folder}{'' if kept else ', removed at the end (--keep DIR keeps them, with all logs)'}"
    )


def _standing(plan: PoolPlan) -> str:
    asleep = f" and {plan.sleepers} asleep in the buffer" if plan.sleepers else ""
    return f"{plan.name} {plan.instances}{asleep}"


def conclude(played: Played, path: Path | None) -> str:
    """Write the report where one is wanted; a summary in words. Raises DemoError or a PortError."""
    report = assemble(played)
    if path is not None:
        write(path, report)
    return summary(report, played, path)


def assemble(played: Played) -> dict[str, Any]:
    """The whole report."""
    record = RecordFile(played.places.database)
    try:
        material = Material(
            results=_results(played),
            cycles=list(record.cycles()),
            pushed=record.pushed(),
            marks=played.marks,
            slot=played.slot,
            truth=played.truth,
            summaries=played.summaries,
            model=next(plan.model for plan in FLEETS[played.wish.fleet][0] if plan.name == STARRED),
            loans=record.loans(),
            pages=record.pages(),
            online=pools_of("online"),
            late_s=seconds(CHARACTERS[STARRED].ttft),
        )
    finally:
        record.close()
    return {
        "complete": played.complete,
        "seed": played.wish.seed,
        "duration_s": played.wish.duration_s,
        "trace": str(played.wish.trace) if played.wish.trace else f"seeded, seed {played.wish.seed}",
        "fleet": played.wish.fleet,
        **figures(material),
        **played.door,
        "traffic": [part for each in played.summaries for part in each.get("traffic", ())],
        "cpu_s": _cpu(played),
        "processes_left": played.processes_left,
        **surroundings(),
    }


def writable(path: Path) -> None:
    """Make the report's folder, and touch nothing else. Raises DemoError where it could not be written.

    A device would be replaced like any file, and a report named `.db` would replace its own record.
    """
    if path.suffix == ".db":
        raise DemoError(f"{path}: the record takes that name; allowed: another suffix, such as .json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise DemoError(f"{path} cannot be written: is no plain file")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except FileExistsError:
        raise DemoError(f"{path} cannot be written: {path.parent} is no folder") from None
    except OSError as error:
        raise DemoError(f"{path} cannot be written: {error.strerror or error}") from error


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Replace the file at once: a reader finds the old report or the new one. Raises DemoError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as sink:
                json.dump(report, sink, indent=2)
                sink.write("\n")
                os.fchmod(sink.fileno(), 0o644)
                os.fsync(sink.fileno())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise DemoError(f"{path} cannot be written: {error.strerror or error}") from error


def summary(report: Mapping[str, Any], played: Played, path: Path | None) -> str:
    """A few lines for people."""
    requests = ", ".join(f"{count} {name}" for name, count in report["requests"].items())
    total = report["latency"]["all"]["total_s"]
    lines = [
        "the demonstration is complete" if played.complete else "stopped early; this is what there was",
        f"requests: {requests}",
        f"latency: P50 {_s(total['p50'])}, P95 {_s(total['p95'])}, P99 {_s(total['p99'])}",
        *_door_lines(report),
        f"levels set at the gateway: {report['pushes']}; lateness P99: {_s(report['lag_p99_s'])}",
        *_moved_lines(report),
        *_story_lines(report["story"]),
    ]
    if path is None:
        return "\n".join([*lines, "with --report FILE the report and the record are kept"])
    database = played.places.database
    return "\n".join(
        [
            *lines,
            f"report: {path}",
            f"record: {database}",
            f"compute every decision again: trimtab replay --all --database {database}",
        ]
    )


def _door_lines(report: Mapping[str, Any]) -> list[str]:
    if not report.get("door"):
        return []
    door, exporter = report["door"], report["exporter"]
    latencies = f"P95 {_s(door['p95_s'])}, first token P95 {_s(door['ttft_p95_s'])}"
    return [f"at the door: {latencies}; {exporter['lines']} lines read, {exporter['lost']} lost"]


def _moved_lines(report: Mapping[str, Any]) -> list[str]:
    loans, drains, pages, surge = report["loans"], report["drains"], report["pages"], report["story"]["surge"]
    if not surge:
        return []
    late, answered = _s(surge["first_late_s"]), _s(surge["first_borrowed_answer_s"])
    between, drained = _s(surge["late_to_borrowed_s"]), drains["streams_cut"]
    return [
        f"the crowd: first late caller after {late}, first answer by borrowed capacity after {answered}",
        f"from the first late caller to the first answer by borrowed capacity: {between}",
        f"loans: {loans['opened']} opened, {loans['closed']} closed, {loans['open']} open",
        f"drains: {drains['n']}, streams cut: {drained}; GPUs unaccounted: {report['gpus_unaccounted']}",
        f"pages: {pages['fired']} fired, {pages['resolved']} resolved",
        *(f"  {each['alert']} {each['pool']}: {each['decision']}" for each in report["story"]["pages"]),
    ]


def _story_lines(story: Mapping[str, Any]) -> list[str]:
    throttle, lines = story["throttle"], []
    if throttle.get("weighted_down_after_s") is not None:
        lines.append(
            f"{throttle['instance']} was throttled, and weighted down after "
            f"{_s(throttle['weighted_down_after_s'])} "
            f"({throttle['weight_before']} → {throttle['weight_after']})"
        )
    for name, seen in story["prometheus"].items():
        lines.append(
            f"Prometheus {name}: {seen['cycles']} cycles, {seen['shrinks']} shrinks, "
            f"{seen['weight_changes']} weights changed"
        )
    return lines


def _s(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.2f} s"


def _cpu(played: Played) -> dict[str, float]:
    """Processor seconds; the generator's by its own word, for it had ended when they were read."""
    traffic = sum(float(each.get("cpu_s", 0.0)) for each in played.summaries)
    others = {name: used for name, used in played.cpu_s.items() if not name.startswith("traffic")}
    return {**others, "traffic": round(traffic, 2)}


def _results(played: Played) -> list[Result]:
    found: list[Result] = []
    for path in played.plays:
        with contextlib.suppress(FileNotFoundError):
            found += read_results(path)
    return found
