"""Plays a schedule over HTTP, open loop: each request leaves at its time, whatever the others do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import numpy as np

from controlplane.traffic.call import (
    INSTANCE_HEADER,
    PATH,
    REQUEST_HEADER,
    Stream,
    Verdict,
    body,
    request_id,
    verdict,
)
from controlplane.traffic.results import Outcome, Result
from controlplane.traffic.schedule import Request, Schedule
from controlplane.traffic.text import Text

KEEP_ALIVE_S = 4.0
"""Idle connections are dropped before a gateway drops them, so that no request meets a closing one."""
PROBE_S = 0.1
"""How often the event loop's own lateness is measured."""

Sink = Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to play. Times in seconds.

    `url` of the gateway, without a path. After `for_s` nothing more is sent, and open requests have
    `grace_s` to end. `timeout_s` bounds one attempt; it is long, since long answers are. From `seed` come
    the chance in the waits between attempts, and the attempts' names.
    """

    url: str
    for_s: float
    grace_s: float = 30.0
    timeout_s: float = 900.0
    seed: int = 0


@dataclass(slots=True)
class Player:
    """One play of one schedule.

    While it runs, `lags_s` fills with the event loop's own lateness and `reads` counts the pieces of
    answers as the socket gave them. `started_at` in epoch seconds.
    """

    settings: Settings
    schedule: Schedule
    sink: Sink
    lags_s: list[float] = field(default_factory=list)
    reads: int = 0
    started_at: float = 0.0
    stopped: bool = False
    _cut: bool = False
    _start: float = 0.0
    _sender: asyncio.Task[None] | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def play(self) -> None:
        """Send everything and wait for the answers. An error of `sink` ends it and is raised."""
        probe = asyncio.create_task(self._probe())
        try:
            async with _client(self.settings.timeout_s) as session, asyncio.TaskGroup() as group:
                self._start, self.started_at = _now(), time.time()
                self._sender = group.create_task(self._send_all(session, group))
        finally:
            probe.cancel()

    def stop(self) -> None:
        """Send nothing more and cut what is open: it ends `unfinished`."""
        self.stopped = True
        if self._sender is not None:
            self._sender.cancel()
        self._cut_open()

    def _cut_open(self) -> None:
        self._cut = True
        for task in self._open:
            task.cancel()

    async def _send_all(self, session: aiohttp.ClientSession, group: asyncio.TaskGroup) -> None:
        for request in self.schedule:
            await self._until(request.due_s)
            task = group.create_task(self._one(session, request))
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        await self._until(self.settings.for_s)
        if self._open:
            await asyncio.wait(self._open, timeout=self.settings.grace_s)
        self._cut_open()

    async def _until(self, due_s: float) -> None:
        delay = self._start + due_s - _now()
        if delay > 0:
            await asyncio.sleep(delay)

    async def _one(self, session: aiohttp.ClientSession, request: Request) -> None:
        call = _Call(request, self.settings.seed, sent=_now())
        try:
            judged = await self._attempts(session, call)
        except asyncio.CancelledError:
            if not self._cut:
                raise
            judged = call.broken or Verdict(Outcome.UNFINISHED, error="open when the play was stopped")
        self.sink(call.result(judged, self._start, self.started_at))

    async def _attempts(self, session: aiohttp.ClientSession, call: _Call) -> Verdict:
        """Try until an attempt is final, and answer its verdict."""
        while True:
            try:
                judged = await call.attempt(session, self.settings.url + PATH)
            finally:
                self.reads += call.stream.reads
            if call.final(judged):
                return judged
            call.broken = judged
            await asyncio.sleep(call.pause_s(judged))

    async def _probe(self) -> None:
        while True:
            due = _now() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self.lags_s.append(_now() - due)


@dataclass(slots=True)
class _Call:
    """One request under way: what is known of it so far, whatever ends it.

    `stream`, `status`, `instance` and `name` are the latest attempt's. `broken`: the verdict on it, while
    the next one is waited for.
    """

    request: Request
    seed: int
    sent: float
    attempts: int = 0
    stream: Stream = field(default_factory=Stream)
    status: int | None = None
    instance: str | None = None
    name: str | None = None
    broken: Verdict | None = None

    async def attempt(self, session: aiohttp.ClientSession, url: str) -> Verdict:
        self._begin()
        headers = {} if self.name is None else {REQUEST_HEADER: self.name}
        try:
            async with session.post(
                url, data=body(self.request), headers=headers, allow_redirects=False
            ) as answer:
                self.status, self.instance = answer.status, answer.headers.get(INSTANCE_HEADER)
                async for chunk in answer.content.iter_any():
                    self.stream.feed(chunk, _now() - self.sent)
                return verdict(answer.status, answer.headers, self.stream, self.request.output_tokens)
        except TimeoutError:
            return Verdict(Outcome.FAILED, error="timeout: no complete answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return Verdict(Outcome.FAILED, error=f"{type(error).__name__}: {error}", again=True)

    def _begin(self) -> None:
        self.attempts += 1
        self.status = self.instance = self.broken = None
        if self.request.client.hashed:
            self.stream, self.name = Stream(Text()), request_id(self.request, self.seed, self.attempts)
        else:
            self.stream = Stream()

    def final(self, judged: Verdict) -> bool:
        return not judged.again or self.attempts >= self.request.client.retry.attempts

    def pause_s(self, judged: Verdict) -> float:
        """The same for the same seed, whatever the other requests do meanwhile."""
        luck = np.random.default_rng((self.seed, self.request.number, self.attempts)).random()
        return self.request.client.retry.pause_s(judged.after_s, luck)

    def result(self, judged: Verdict, start: float, start_at: float) -> Result:
        sent_s, text = self.sent - start, self.stream.text
        return Result(
            sent_s=sent_s,
            sent_at=start_at + sent_s,
            model=self.request.model,
            status=self.status,
            outcome=judged.outcome,
            ttft_s=self.stream.ttft_s,
            total_s=_now() - self.sent,
            tokens=judged.tokens,
            instance=self.instance,
            lateness_s=max(0.0, sent_s - self.request.due_s),
            prompt_tokens=self.request.prompt_tokens,
            output_tokens=self.request.output_tokens,
            error=judged.error,
            attempts=self.attempts,
            sha256=text.sha256() if text is not None and judged.outcome is Outcome.OK else None,
            request_id=self.name,
        )


def _client(timeout_s: float) -> aiohttp.ClientSession:
    """No limit on connections: a limit in here would be a queue in here, and close the loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json"},
    )


def _now() -> float:
    return time.monotonic()
