"""The cadence keeps its beat: through defects, slow cycles and jumping clocks, and it ends cleanly."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from controlplane.domain.ids import CycleKind
from controlplane.loop import runner as module
from controlplane.loop.runner import Runner
from controlplane.telemetry.http import healthz
from tests.loop.world import HandClock
from tests.support import eventually

WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY
HOUR = 3600.0
LONG = 1000.0
"""An interval that ends in no test: only the first cycle, or one that was planned anew, can come."""


@dataclass(slots=True)
class Work:
    """Counts cycles, how many ran at once, and does what a test wants done in the n-th one."""

    on: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    kinds: list[CycleKind] = field(default_factory=list)
    running: int = 0
    most: int = 0

    def __call__(self, kind: CycleKind) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.kinds.append(kind)
        try:
            self.on.get(len(self.kinds), lambda: None)()
        finally:
            self.running -= 1

    def count(self, kind: CycleKind) -> int:
        return self.kinds.count(kind)


@contextmanager
def running(
    work: Work, intervals: Mapping[CycleKind, float], clock: HandClock | None = None
) -> Iterator[Runner]:
    runner = Runner(work, intervals, clock or HandClock())
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


def breaks() -> None:
    raise KeyError("tick three")


def test_both_kinds_run_at_once_at_the_start() -> None:
    work = Work()
    with running(work, {WEIGHTS: LONG, CAPACITY: LONG}) as runner:
        eventually(lambda: len(work.kinds) == 2, 10.0)
        assert set(work.kinds) == {WEIGHTS, CAPACITY}
        eventually(lambda: runner.health.beats[CAPACITY].cycles == 1, 10.0)


def test_a_defect_in_the_third_cycle_is_counted_and_the_fourth_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B-191: a background task must not die silently."""
    work = Work({3: breaks})
    with running(work, {WEIGHTS: 0.02}) as runner:
        beat = runner.health.beats[WEIGHTS]
        eventually(lambda: beat.cycles >= 4, 10.0)
    assert (beat.errors, beat.last_error) == (1, "KeyError: 'tick three'")
    broken = [each for each in caplog.records if "broke" in each.message]
    assert len(broken) == 1
    assert broken[0].exc_info


def test_a_loop_that_only_breaks_stops_being_healthy() -> None:
    """A cycle that raises is no finished cycle, however often it comes (B-191)."""
    clock, work = HandClock(), Work(dict.fromkeys(range(2, 1000), breaks))
    with running(work, {WEIGHTS: 0.02}, clock) as runner:
        beat = runner.health.beats[WEIGHTS]
        eventually(lambda: beat.cycles == 1 and beat.errors >= 2, 10.0)
        assert healthz(runner.health)[0] == 200
        clock.pass_s(0.07)
        status, body = healthz(runner.health)
    assert status == 503
    assert body["clocks"][WEIGHTS]["last_error"] == "KeyError: 'tick three'"


def test_health_turns_bad_just_after_three_intervals_without_a_finished_cycle() -> None:
    """B-191: before, all is well; after, 503 with the kind and its age; the other kind is not blamed."""
    clock = HandClock()
    health = Runner(Work(), {WEIGHTS: 5.0, CAPACITY: 30.0}, clock).health
    clock.pass_s(15.0)
    status, body = healthz(health)
    assert (status, body["ok"], body["reasons"]) == (200, True, [])
    clock.pass_s(0.5)
    status, body = healthz(health)
    assert (status, body["ok"]) == (503, False)
    assert body["reasons"] == ["the weights loop finished its last cycle 15.5 s ago, more than 3 intervals"]
    assert body["clocks"][CAPACITY]["last_cycle_age_s"] == 15.5
    clock.pass_s(80.0)
    assert len(healthz(health)[1]["reasons"]) == 2


def test_a_jump_of_the_wall_clock_says_nothing_about_health() -> None:
    clock = HandClock()
    health = Runner(Work(), {WEIGHTS: 5.0}, clock).health
    clock.now += HOUR
    assert healthz(health)[0] == 200
    clock.now -= 2 * HOUR
    assert healthz(health)[0] == 200


def test_a_slow_cycle_and_the_other_kind_never_overlap() -> None:
    gate = threading.Event()
    work = Work({1: lambda: _wait(gate)})
    with running(work, {WEIGHTS: 0.02, CAPACITY: 0.03}):
        eventually(lambda: work.running == 1, 10.0)
        assert len(work.kinds) == 1
        gate.set()
        eventually(lambda: work.count(WEIGHTS) >= 5 and work.count(CAPACITY) >= 5, 10.0)
    assert work.most == 1


def test_ticks_missed_during_a_slow_cycle_come_as_one() -> None:
    """The slow cycle spans many intervals. Had each of them been queued, they would all come at once."""
    gate, work, clock = threading.Event(), Work(), HandClock()
    runner = Runner(work, {WEIGHTS: LONG}, clock)
    work.on = {1: lambda: _wait(gate)}
    runner.start()
    try:
        eventually(lambda: work.running == 1, 10.0)
        for _ in range(20):
            runner.replan()
            _until_planned(runner)
        gate.set()
        eventually(lambda: runner.health.beats[WEIGHTS].cycles == 1, 10.0)
    finally:
        runner.stop()
    assert len(work.kinds) == 1


def test_stopping_waits_for_the_cycle_under_way() -> None:
    gate, work = threading.Event(), Work()
    work.on = {1: lambda: _wait(gate)}
    runner = Runner(work, {WEIGHTS: LONG}, HandClock())
    runner.start()
    eventually(lambda: work.running == 1, 10.0)
    stopping = threading.Thread(target=runner.stop)
    stopping.start()
    eventually(runner._ended.is_set, 10.0)
    assert stopping.is_alive()
    assert runner.health.beats[WEIGHTS].cycles == 0
    gate.set()
    stopping.join(10.0)
    assert not stopping.is_alive()
    assert runner.health.beats[WEIGHTS].cycles == 1


def test_a_cycle_that_still_waits_for_its_turn_does_not_begin_once_stopping() -> None:
    """The other kind stands in the queue behind a slow cycle when the order to stop comes."""
    gate, work = threading.Event(), Work()
    work.on = {1: lambda: _wait(gate)}
    runner = Runner(work, {WEIGHTS: LONG, CAPACITY: LONG}, HandClock())
    runner.start()
    eventually(lambda: work.running == 1, 10.0)
    _until_planned(runner)
    stopping = threading.Thread(target=runner.stop)
    stopping.start()
    eventually(runner._ended.is_set, 10.0)
    gate.set()
    stopping.join(10.0)
    assert not stopping.is_alive()
    assert len(work.kinds) == 1


def test_start_and_stop_leave_no_thread() -> None:
    before = set(threading.enumerate())
    work = Work()
    with running(work, {WEIGHTS: 0.02}):
        eventually(lambda: work.kinds, 10.0)
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 1.5, -1.5])
def test_a_jump_of_the_wall_clock_plans_anew_and_says_so(
    jump: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the jump only the first cycle ran; after it another comes, an interval early."""
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    caplog.set_level(logging.WARNING)
    clock, work = HandClock(), Work()
    with running(work, {WEIGHTS: LONG, CAPACITY: LONG}, clock):
        eventually(lambda: len(work.kinds) == 2, 10.0)
        clock.now += jump
        eventually(lambda: work.count(WEIGHTS) == work.count(CAPACITY) == 2, 10.0)
    said = [each.message for each in caplog.records if "jumped" in each.message]
    assert said == [f"the wall clock jumped by {jump:+.1f} s; cycles are planned anew"]


def test_two_clocks_that_drift_a_little_plan_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slewing after a synchronisation is no jump."""
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    clock, work, looks = HandClock(), Work(), Looks()
    with running(work, {WEIGHTS: LONG}, clock) as runner:
        runner._clock = looks.at(clock)
        eventually(lambda: work.kinds, 10.0)
        clock.now += 0.9
        looks.more(3)
        clock.now -= 0.9
        looks.more(3)
    assert len(work.kinds) == 1


def test_an_hour_back_leaves_no_hour_without_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the scheduler had planned lies an hour ahead after the jump; planning anew brings it to now."""
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    clock, work = HandClock(), Work()
    with running(work, {WEIGHTS: LONG}, clock) as runner:
        eventually(lambda: len(work.kinds) == 1, 10.0)
        job = runner._scheduler.get_job(WEIGHTS)
        job.modify(next_run_time=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
        clock.now -= HOUR
        eventually(lambda: len(work.kinds) == 2, 10.0)
        planned = runner._scheduler.get_job(WEIGHTS).next_run_time
        assert planned <= dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LONG)


@dataclass(slots=True)
class Looks:
    """A clock that counts how often it was read."""

    clock: HandClock = field(default_factory=HandClock)
    seen: int = 0

    def at(self, clock: HandClock) -> Looks:
        self.clock = clock
        return self

    def more(self, times: int) -> None:
        """Wait until it has been read so many times more."""
        goal = self.seen + times
        eventually(lambda: self.seen >= goal, 10.0)

    def wall(self) -> float:
        self.seen += 1
        return self.clock.wall()

    def monotonic(self) -> float:
        return self.clock.monotonic()


def _wait(gate: threading.Event) -> None:
    assert gate.wait(10.0)


def _until_planned(runner: Runner) -> None:
    """Until the scheduler has dealt with everything that is due now."""
    eventually(
        lambda: all(each.next_run_time > dt.datetime.now(dt.UTC) for each in runner._scheduler.get_jobs()),
        10.0,
        every_s=0.005,
    )
