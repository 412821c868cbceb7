"""The cadence: two clocks, one cycle at a time, whatever the wall clock does.

APScheduler plans by the wall clock, so one hour back means an hour without a run. A watchdog
compares it with the monotonic clock every second, and plans anew after a jump.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from controlplane.domain.ids import CycleKind
from controlplane.ports import Clock

WATCH_S = 1.0
JUMP_S = 1.0
STALLED_INTERVALS = 3.0
"""A clock that has not finished a cycle for this many intervals is stalled."""

Work = Callable[[CycleKind], None]
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Beat:
    """One clock's health. Instants on the monotonic clock."""

    interval_s: float
    finished_at: float
    cycles: int = 0
    errors: int = 0
    last_error: str = ""


@dataclass(slots=True)
class Health:
    """What the loop knows of its own beat, for `/healthz` and the metrics."""

    clock: Clock
    beats: dict[CycleKind, Beat] = field(default_factory=dict)

    def age_s(self, kind: CycleKind) -> float:
        """Monotonic seconds since the last finished cycle of this kind (since the start, before one)."""
        return self.clock.monotonic() - self.beats[kind].finished_at

    def stalled(self) -> Mapping[CycleKind, float]:
        """The kinds whose last cycle is too long ago, with its age in seconds."""
        ages = {kind: self.age_s(kind) for kind in self.beats}
        return {
            kind: age for kind, age in ages.items() if age > STALLED_INTERVALS * self.beats[kind].interval_s
        }


class Runner:
    """Calls `work` for each kind at its interval, in one worker thread.

    A cycle that raises is logged and counted, and the next one comes all the same. Missed ticks
    are coalesced into one. `stop` waits for the cycle under way.
    """

    def __init__(self, work: Work, intervals: Mapping[CycleKind, float], clock: Clock) -> None:
        self._work = work
        self._clock = clock
        now = clock.monotonic()
        self.health = Health(clock, {kind: Beat(each, now) for kind, each in intervals.items()})
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=dt.UTC,
        )
        self._ended = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="clock-watchdog", daemon=True)

    def start(self) -> None:
        """Begin; the first cycle of each kind runs at once."""
        # Skipping a tick because the last cycle still runs is what we asked for, and no news.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        for kind, beat in self.health.beats.items():
            self._scheduler.add_job(
                self._run,
                "interval",
                seconds=beat.interval_s,
                args=[kind],
                id=kind,
                next_run_time=dt.datetime.now(dt.UTC),
            )
        self._scheduler.start()
        self._watchdog.start()

    def stop(self) -> None:
        """End: no new cycle begins, the one under way is waited for."""
        self._ended.set()
        self._scheduler.shutdown(wait=True)
        self._watchdog.join()

    def replan(self) -> None:
        """Plan every clock anew from now, by whatever the wall clock says now."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=dt.datetime.now(dt.UTC))
        self._scheduler.wakeup()

    def _run(self, kind: CycleKind) -> None:
        if self._ended.is_set():
            return  # it stood in the queue behind the cycle that `stop` waited for
        beat = self.health.beats[kind]
        try:
            self._work(kind)
        except Exception as error:
            beat.errors += 1
            beat.last_error = f"{type(error).__name__}: {error}"
            log.exception("a %s cycle broke; the next one comes at its time", kind)
        else:
            beat.cycles += 1
            beat.finished_at = self._clock.monotonic()

    def _watch(self) -> None:
        last = self._instants()
        while not self._ended.wait(WATCH_S):
            # Each instant is read once: a jump between two readings of it would be lost.
            now = self._instants()
            jump = (now[0] - last[0]) - (now[1] - last[1])
            last = now
            if abs(jump) > JUMP_S:
                log.warning("the wall clock jumped by %+.1f s; cycles are planned anew", jump)
                self.replan()

    def _instants(self) -> tuple[float, float]:
        return self._clock.wall(), self._clock.monotonic()
