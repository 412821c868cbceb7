"""One demonstration from start to end: start, play, end everything, report."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controlplane.demo.act import TICK_S, Actor, Mark
from controlplane.demo.door import counts, figures, rows
from controlplane.demo.fleet import Places, pools_of
from controlplane.demo.processes import Child, Crew, DemoError, Stopped, died
from controlplane.demo.stage import (
    GRACE_S,
    TRAFFIC,
    Stage,
    Wish,
    check,
    fetch,
    free_ports,
    start_fleet,
    start_traffic,
)
from controlplane.demo.timeline import Phase, open_end, story

TRAFFIC_READY_S = 60.0
TRUTH_S = 10.0
"""How long the twin may take to tell what was true: a starved one is slow, and has most to tell."""


class Watcher(Protocol):
    """Who shows what happens."""

    def say(self, text: str) -> None:
        """A line for people."""
        ...

    def phase(self, actor: Actor, mark: Mark, /) -> None:
        """A phase begins."""
        ...

    def tick(self, actor: Actor) -> None:
        """Some time has passed."""
        ...


@dataclass(slots=True)
class Played:
    """What a demonstration left behind, for its report. `truth`: the twin's own word at the end; `door`:
    what callers saw, by the gateway's log."""

    wish: Wish
    places: Places
    started_at: float
    marks: list[Mark] = field(default_factory=list)
    slot: str = ""
    plays: list[Path] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    truth: dict[str, Any] = field(default_factory=dict)
    door: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    processes_left: int = 0
    cpu_s: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def run_folder(keep: Path | None) -> Iterator[Path]:
    """A folder for one run: kept where it was named, else removed at the end. Raises DemoError."""
    if keep is not None:
        yield _new(keep)
        return
    folder = Path(tempfile.mkdtemp(prefix="trimtab-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new(keep: Path) -> Path:
    """An empty folder: an older run's series would be taken for this one's."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as error:
        raise DemoError(f"{keep} cannot be used: {error.strerror or error}") from error
    if not empty:
        raise DemoError(f"{keep} is not empty; allowed: an empty or a new folder")
    return keep.absolute()


def perform(wish: Wish, folder: Path, watcher: Watcher, stop: threading.Event) -> Played:
    """Start everything, tell the story, end everything.

    A stop from outside ends it early and leaves `complete` False. Raises DemoError or a PortError
    where something broke; also then nothing is left running.
    """
    stage = _stage(wish, folder, stop)
    actor = Actor(stage)
    played = Played(wish, stage.places, time.time())
    try:
        with suppress(Stopped):
            _play(stage, actor, watcher)
            played.complete = True
    finally:
        _finish(stage, actor, played)
    return played


def _stage(wish: Wish, folder: Path, stop: threading.Event) -> Stage:
    prometheus, _ = check(wish)
    gateway, exporter, metrics, log, door, controller, pager = free_ports(7)
    database = wish.database or folder / "trimtab.db"
    places = Places(folder, database.absolute(), metrics, gateway, exporter, 0, log, door, controller, pager)
    return Stage(wish, Crew(folder, stop.is_set), places, prometheus)


def _play(stage: Stage, actor: Actor, watcher: Watcher) -> None:
    start_fleet(stage, watcher.say)
    traffic = start_traffic(stage)
    stage.crew.wait_for(traffic, stage.plays[0].exists, "results file", TRAFFIC_READY_S)
    watcher.say("traffic flows")
    start = time.monotonic()
    phases = story(stage.wish.story_s)
    for phase in phases:
        _phase(stage, actor, watcher, phase, start)
    if stage.wish.duration_s is None:
        actor.clear()
        _phase(stage, actor, watcher, open_end(phases), start)
    _await_traffic(stage, traffic, actor, watcher)


def _phase(stage: Stage, actor: Actor, watcher: Watcher, phase: Phase, start: float) -> None:
    mark = actor.begin(phase)
    watcher.phase(actor, mark)
    try:
        while (left := start + phase.to_s - time.monotonic()) > 0:
            stage.crew.check()
            actor.tick(mark)
            _again(stage)
            watcher.tick(actor)
            time.sleep(min(TICK_S, left))
    finally:
        mark.to_at = actor.clock()
    actor.end(mark)


def _again(stage: Stage) -> None:
    """Where there is no end, traffic that has ended begins anew."""
    plays = [each for each in stage.crew.children if each.name.rpartition("-")[0] == TRAFFIC]
    if stage.wish.duration_s is None and plays and not plays[-1].alive:
        start_traffic(stage)


def _await_traffic(stage: Stage, traffic: Child, actor: Actor, watcher: Watcher) -> None:
    """Open requests end by themselves."""
    watcher.say("the last requests end")
    end = time.monotonic() + GRACE_S + 10.0
    while traffic.alive and time.monotonic() < end:
        stage.crew.check()
        watcher.tick(actor)
        time.sleep(TICK_S)
    if traffic.process.poll() != 0:
        raise DemoError(died(traffic) if not traffic.alive else "the traffic does not end")


def _finish(stage: Stage, actor: Actor, played: Played) -> None:
    """End all processes, the traffic first, while the twin can still say what was true."""
    players = [each for each in stage.crew.children if each.name.startswith("traffic")]
    for each in players:
        stage.crew.end(each)
    with suppress(OSError, ValueError):
        played.truth = fetch(f"http://127.0.0.1:{stage.places.twin}/truth", TRUTH_S)
    counted = counts(stage.places.door_metrics)
    stage.crew.end_all()
    played.door = figures(rows(stage.places.folder), counted, pools_of("offline"))
    stage.places.socket.unlink(missing_ok=True)
    played.cpu_s = stage.crew.cpu_s
    played.places, played.marks, played.slot = stage.places, actor.marks, actor.slot
    played.plays = stage.plays
    played.summaries = [found for each in players if (found := _summary(each))]
    played.processes_left = stage.crew.left()


def _summary(player: Child) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(player.out.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
