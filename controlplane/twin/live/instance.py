"""One engine process of the twin: its own socket, its life, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from controlplane.twin.engine.costs import Costs
from controlplane.twin.engine.engine import Engine
from controlplane.twin.live.answer import DONE, Asked, Asleep, BadRequest, Writer, first_number, parse
from controlplane.twin.live.exposition import Snapshot, render
from controlplane.twin.live.faults import Fault, FaultKind
from controlplane.twin.live.lifecycle import Phase, Record, following
from controlplane.twin.live.pace import Lateness, Pace, Stream
from controlplane.twin.live.roster import Roster
from controlplane.twin.live.stats import Life, Stats
from controlplane.twin.live.transcripts import Transcripts, request_id

IDLE_CPU = 0.02
"""Processor seconds a second that an idle engine process burns: its counter never stands still."""

BUSY_CPU = 0.6
LIE = 0.1
"""What a lying instance says of its latencies, as a share of the truth."""

MAX_BODY = 64 << 20
CLOSE_S = 0.05
"""Seconds that a closing socket waits for answers under way. Not 0: the library takes that for "forever",
and one that hangs would never close."""

ID_HEADER = "x-request-id"
RETRY_S = 0.1
"""Between two tries of a warm-up request that was not answered."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What an instance is. `chunk`: tokens in one streamed chunk; `speed`: of its cards, 1.0 as the
    profile says. `cold_start_s`, `wake_s`, `leave_s`: seconds that loading its weights, waking, and
    falling asleep or ending take."""

    model: str
    costs: Costs
    chunk: int
    speed: float
    cold_start_s: float
    wake_s: float
    leave_s: float


@dataclass(slots=True)
class Process:
    """One start of the engine: everything that a crash loses. `born`: when it really began; `created`:
    the start that its id names."""

    born: float
    created: float
    pace: Pace
    http: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """What all instances of a twin write down for `/truth`."""

    lateness: Lateness = field(default_factory=Lateness)
    transcripts: Transcripts = field(default_factory=Transcripts)


class TwinInstance:
    """An engine in a slot. Its record says where it stands; it walks from phase to phase by itself."""

    def __init__(self, spec: Spec, record: Record, roster: Roster, host: str, notes: Notes) -> None:
        self.spec = spec
        self.record = record
        self.host = host
        self._roster = roster
        self._held = hold_port(host)
        self.address = f"{host}:{self._held.getsockname()[1]}"
        self.fault: Fault | None = None
        self.broken = 0
        self.evicted = 0
        self._notes = notes
        self._runner: web.AppRunner | None = None
        self._frozen: bytes | None = None
        self._walk: asyncio.Task[None] | None = None
        self._walking: Phase | None = None
        self._open = 0
        self.process = self._new_process()

    @property
    def slot(self) -> str:
        """The name that stays when it starts anew."""
        return self.record.slot

    @property
    def engine(self) -> Engine:
        """The engine of the present start."""
        return self.process.pace.engine

    def _new_process(self) -> Process:
        loop = asyncio.get_running_loop()
        engine = Engine(self.spec.costs, self.spec.speed)
        pace = Pace(engine, Stats(), self.spec.chunk, loop.time, self._notes.lateness)
        return Process(time.time(), self.record.started_at, pace)

    async def listen(self) -> None:
        """Answer on its socket. Raises OSError."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=CLOSE_S, handler_cancellation=True
        )
        await self._runner.setup()
        port = self._held.getsockname()[1]
        await web.TCPSite(self._runner, self.host, port, backlog=1024, reuse_address=True).start()
        self.process.task = asyncio.create_task(self.process.pace.run())

    async def stop(self) -> None:
        """Close the socket and every stream."""
        if self._walk is not None and self._walk is not asyncio.current_task():
            self._walk.cancel()
            await asyncio.wait({self._walk})
        await self._end_process()
        self._held.close()

    async def _end_process(self) -> None:
        self.process.pace.break_all()
        if self.process.task is not None:
            self.process.task.cancel()
            await asyncio.wait({self.process.task})
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def follow(self) -> None:
        """Walk on from the phase that an order put it in; a walk that may go on does."""
        before = self._walk
        if before is None or before.done() or self.record.phase is not self._walking:
            if before is not None:
                before.cancel()
            self._walk = asyncio.create_task(self._walk_on(before))

    async def _walk_on(self, before: asyncio.Task[None] | None) -> None:
        """Phase after phase, until what is wanted is so."""
        if before is not None:
            await asyncio.wait({before})
        while following(self.record) is not None:
            self._walking = self.record.phase
            await self._work()
            if (phase := following(self.record)) is Phase.GONE:
                await self.stop()
            if phase is not None:
                self._roster.enter(self.record, phase)

    async def _work(self) -> None:
        """What takes time in the present phase."""
        match self.record.phase:
            case Phase.LOADING:
                await asyncio.sleep(self.spec.cold_start_s)
                await self.listen()
            case Phase.WARMING:
                await self._warm_up()
            case Phase.WAKING:
                await asyncio.sleep(self.spec.wake_s)
            case Phase.DRAINING:
                self.evicted += self.process.pace.evict()
                await asyncio.sleep(self.spec.leave_s)
            case Phase.ASLEEP if following(self.record) is Phase.GONE:
                await asyncio.sleep(self.spec.leave_s)

    async def _warm_up(self) -> None:
        """A completion of one token over its own socket, until one is answered."""
        url = f"http://{self.address}/v1/completions"
        sent = {"model": self.spec.model, "prompt": "Warm up.", "max_tokens": 1}
        async with ClientSession(timeout=ClientTimeout(total=None)) as session:
            while not await _answered(session, url, sent):
                await asyncio.sleep(RETRY_S)

    def order(self, fault: Fault | None) -> None:
        """Put a fault in force, or (None) clear the one that is. A crash takes its course."""
        self.fault, self._frozen = fault, None
        kind, pace = self._kind, self.process.pace
        slowed = kind in {FaultKind.SLOW, FaultKind.THROTTLE}
        pace.set_speed(self.spec.speed * (fault.factor if fault and slowed else 1.0))
        pace.stats.claim = LIE if kind is FaultKind.LYING else 1.0
        if kind is FaultKind.HANG:
            pace.halt()
        else:
            pace.resume()
        if kind is FaultKind.CRASH:
            self._crash()

    def _crash(self) -> None:
        self.broken += self._open
        self.process.pace.break_all()
        self._roster.crash(self.record)
        self._walking = self.record.phase
        if self._walk is not None:
            self._walk.cancel()
        self._walk = asyncio.create_task(self._come_back(self._walk))

    async def _come_back(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await self._end_process()
        self.fault = None
        if self.record.phase is Phase.GONE:
            self._held.close()
            return
        self.process = self._new_process()
        await self._walk_on(None)

    @property
    def _kind(self) -> FaultKind | None:
        return None if self.fault is None else self.fault.kind

    async def _hang(self) -> None:
        """Answer nothing while the fault lasts."""
        while self._kind is FaultKind.HANG:
            await asyncio.sleep(0.1)

    async def _health(self, _request: web.Request) -> web.Response:
        await self._hang()
        return web.Response()

    async def _models(self, _request: web.Request) -> web.Response:
        await self._hang()
        self.process.http["/v1/models", "GET", "2xx"] += 1
        model = {"id": self.spec.model, "object": "model", "owned_by": "vllm"}
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        await self._hang()
        lying = self._kind is FaultKind.LYING
        text = self._frozen or render(self._snapshot(lying=lying), self.process.pace.stats)
        if self._kind is FaultKind.FROZEN:
            self._frozen = text
        return web.Response(body=text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    def _snapshot(self, *, lying: bool) -> Snapshot:
        process, engine = self.process, self.engine
        age = time.time() - process.born
        return Snapshot(
            model=self.spec.model,
            running=0 if lying else len(engine.running),
            waiting=0 if lying else len(engine.waiting),
            kv_use=0.0 if lying else engine.kv_use,
            kv_tokens=self.spec.costs.kv_tokens,
            created=process.created,
            asleep=self.record.phase is Phase.ASLEEP,
            cpu_s=round(5.0 + IDLE_CPU * age + BUSY_CPU * process.pace.stats.busy_s, 2),
            http=process.http,
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self._open += 1
        try:
            await self._hang()
            return await self._answer(request)
        except asyncio.CancelledError:
            self.broken += self._kind is FaultKind.HANG  # the caller gave a silent instance up
            raise
        finally:
            self._open -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        arrived = asyncio.get_running_loop().time()
        handler = request.path
        try:
            self._awake()
            asked = parse(await request.read(), self.spec.model)
            key, stream = await self._admit(asked, arrived)
        except BadRequest as error:
            self.process.http[handler, "POST", f"{error.status // 100}xx"] += 1
            return web.json_response(error.body(), status=error.status, headers=self._headers(request))
        self.process.http[handler, "POST", "2xx"] += 1
        name = request_id(request.headers.get(ID_HEADER)) or f"cmpl-{key}"
        writer = Writer("chat" in handler, f"cmpl-{key}", asked.model, int(time.time()), first_number(name))
        process = self.process
        try:
            if asked.stream:
                return await self._stream(request, asked, stream, writer)
            return await self._whole(request, asked, stream, writer)
        finally:
            process.pace.give_up(key)  # does nothing where it is finished

    def _awake(self) -> None:
        if not self.record.accepts:
            raise Asleep(f"the engine is {self.record.phase}: it takes no requests")

    async def _admit(self, asked: Asked, arrived: float) -> tuple[int, Stream]:
        await asyncio.sleep(self.spec.costs.ttft_overhead_ms / 1000.0)
        self._awake()
        life = Life(asked.prompt_tokens, asked.output_tokens, arrived)
        try:
            return self.process.pace.submit(life)
        except ValueError as error:
            raise BadRequest(f"prompt_tokens, max_tokens: {error}") from error

    async def _stream(
        self, request: web.Request, asked: Asked, stream: Stream, writer: Writer
    ) -> web.StreamResponse:
        """Headers at once, as vLLM does; then chunks as they are made."""
        response = web.StreamResponse(headers={**self._headers(request), "content-type": "text/event-stream"})
        with contextlib.suppress(ConnectionResetError):  # the caller left while a chunk was written
            await response.prepare(request)
            await self._write(request, asked, stream, writer, response)
        return response

    async def _write(
        self, request: web.Request, asked: Asked, stream: Stream, writer: Writer, response: web.StreamResponse
    ) -> None:
        transcript, sent = self._notes.transcripts.begin(request_id(request.headers.get(ID_HEADER))), 0
        while not stream.finished or stream.pending:
            await stream.ready.wait()
            if stream.broken:
                self._cut(request)
                return
            if count := stream.take():
                transcript.add(text := writer.text(sent, count))
                sent += count
                await response.write(writer.tokens(text))
        tail = writer.last() + (writer.usage(asked) if asked.usage else b"") + DONE
        await response.write(tail)
        transcript.complete = True

    async def _whole(
        self, request: web.Request, asked: Asked, stream: Stream, writer: Writer
    ) -> web.Response:
        while not stream.finished:
            await stream.ready.wait()
            if stream.broken:
                self._cut(request)
                return web.Response()
            stream.ready.clear()
        return web.json_response(writer.whole(asked), headers=self._headers(request))

    def _headers(self, request: web.Request) -> dict[str, str]:
        name = request_id(request.headers.get(ID_HEADER))
        return {"x-twin-instance": self.slot} | ({} if name is None else {ID_HEADER: name})

    @staticmethod
    def _cut(request: web.Request) -> None:
        """End the connection in the middle of the answer, as a dying process does."""
        if request.transport is not None:
            request.transport.abort()


def hold_port(host: str) -> socket.socket:
    """A free port, kept for as long as the socket is open: bound, and never listened on.

    While the instance is down its port is refused and nobody else's, so it comes back to the same
    address. (Linux lets one listener share such a port where both ask to reuse the address.)
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host, 0))
    return kept


async def _answered(session: ClientSession, url: str, sent: Mapping[str, object]) -> bool:
    try:
        async with session.post(url, json=sent) as answer:
            await answer.read()
            return answer.status == web.HTTPOk.status_code
    except ClientError:
        return False
