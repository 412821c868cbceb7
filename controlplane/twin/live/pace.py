"""Plays an engine's virtual steps against the wall clock, and hands tokens to open streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.twin.engine.engine import Engine, EventKind, Finished
from controlplane.twin.live.stats import Life, Stats

GLANCE_S = 0.03
"""While nobody waits for a first token, steps are finished this many seconds at a time: the steps
keep their own instants, only the waking is rarer."""

KEPT_LATENESS = 20_000


@dataclass(slots=True)
class Stream:
    """One open answer: tokens made and not yet written, and whether more will come."""

    pending: int = 0
    made: int = 0
    finished: bool = False
    broken: bool = False
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> int:
        """Hand over what is pending."""
        count, self.pending = self.pending, 0
        self.ready.clear()
        return count


@dataclass(slots=True)
class Lateness:
    """How much later than ordered things happened, in seconds; the last `KEPT_LATENESS` of them."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LATENESS))
    worst: float = 0.0

    def note(self, seconds: float) -> None:
        """Take one delay."""
        self.values.append(seconds)
        self.worst = max(self.worst, seconds)

    def quantile(self, q: float) -> float | None:
        """The q-quantile (nearest rank), None before anything happened."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


@dataclass(slots=True)
class Pace:
    """Drives one engine. `clock` is the event loop's, in seconds."""

    engine: Engine
    stats: Stats
    chunk: int
    clock: Callable[[], float]
    lateness: Lateness
    streams: dict[int, Stream] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _keys: int = 0
    _halted_at: float | None = None

    def submit(self, life: Life) -> tuple[int, Stream]:
        """Queue a request now. ValueError where it can never fit."""
        now = self.clock()
        self._catch_up(now)
        key = self._keys
        self.engine.submit(key, life.prompt_tokens, life.output_tokens, now)
        self._keys += 1
        self.stats.arrive(key, life)
        self.streams[key] = stream = Stream()
        self._wake.set()
        return key, stream

    def give_up(self, key: int) -> None:
        """The caller left: its seat is free from the next step on."""
        if self.streams.pop(key, None) is not None:
            self._catch_up(self.clock())
            self.engine.abort(key)
            self.stats.give_up(key)

    def set_speed(self, speed: float) -> None:
        """From the next step on. Steps that are over by now were still taken at the old speed."""
        self._catch_up(self.clock())
        self.engine.speed = speed

    def halt(self) -> None:
        """Take no step any more: what was streaming stays open and silent."""
        if self._halted_at is None:
            now = self.clock()
            self._catch_up(now)
            self._halted_at = now

    def resume(self) -> None:
        """Go on where it halted; nothing where it never did."""
        if self._halted_at is not None:
            self.engine.postpone(self._halted_at, self.clock())
            self._halted_at = None
            self._wake.set()

    def work(self) -> tuple[float, float]:
        """Seconds in which a step ran since the start, and the same times its sequences.

        The step in progress counts as far as it has come.
        """
        now = self.clock() if self._halted_at is None else self._halted_at
        self._catch_up(now)
        seconds, sequences = self.engine.progress(now)
        return self.stats.busy_s + seconds, self.stats.sequence_s + seconds * sequences

    def break_all(self) -> int:
        """Cut every open stream, as a dying process does. How many there were."""
        for stream in self.streams.values():
            stream.broken = True
            stream.ready.set()
        count = len(self.streams)
        self.streams.clear()
        return count

    def evict(self) -> int:
        """Cut every open stream and forget it, as an engine does that falls asleep. How many there were."""
        self._catch_up(self.clock())
        cut = 0
        for key, stream in list(self.streams.items()):
            if key in self.streams:  # else it was finished meanwhile
                self.give_up(key)
                stream.broken = True
                stream.ready.set()
                cut += 1
        return cut

    async def run(self) -> None:
        """Finish steps as their time comes, until cancelled. Idle, it sleeps."""
        while True:
            self._wake.clear()
            due = self._due()
            if due is None:
                await self._wake.wait()
                continue
            await self._sleep_until(due)
            now = self.clock()
            if self.engine.next_end is not None and now >= due:
                self.lateness.note(now - due)
            self._catch_up(now)

    def _due(self) -> float | None:
        end = self.engine.next_end
        if end is None or self._halted_at is not None:
            return None
        return end if self.engine.owes_first_token else max(end, self.clock() + GLANCE_S)

    async def _sleep_until(self, due: float) -> None:
        """Until `due`, or earlier when a request comes in and moves it."""
        delay = due - self.clock()
        if delay <= 0:
            await asyncio.sleep(0)
            return
        timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _catch_up(self, now: float) -> None:
        if self._halted_at is not None:
            return
        for step in self.engine.advance(now):
            self.stats.step(step)
            self._deliver(step)

    def _deliver(self, step: Finished) -> None:
        for event in step.events:
            stream = self.streams.get(event.request)
            if stream is None:
                continue
            if event.kind is EventKind.TOKEN:
                stream.pending += 1
                stream.made += 1
                if stream.made == 1 or stream.pending >= self.chunk:
                    stream.ready.set()
            elif event.kind is EventKind.FINISHED:
                stream.finished = True
                stream.ready.set()
                del self.streams[event.request]
