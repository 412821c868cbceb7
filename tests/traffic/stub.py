"""A stand-in for gateway and engine on loopback: the model's name says how it answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

SLOT = "chat-8b-03"


@dataclass
class Stub:
    """What the server has seen. While `release` is unset, model `held` gets no answer.

    A model named `cut,down,ok` is cut at a request's first attempt, down at its second, and ok from then
    on; requests are told apart by their prompt's length.
    """

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter)
    open_now: int = 0
    open_most: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        asked = json.loads(raw)
        self.raw.append(raw)
        self.bodies.append(asked)
        self.names.append(request.headers.get("x-request-id"))
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            return await ANSWERS.get(self._kind(asked), _unknown)(self, request, asked)
        finally:
            self.open_now -= 1

    def _kind(self, asked: dict[str, Any]) -> str:
        kinds = asked["model"].split(",")
        attempt = self.attempts[asked["model"], asked["prompt_tokens"]]
        self.attempts[asked["model"], asked["prompt_tokens"]] += 1
        return str(kinds[min(attempt, len(kinds) - 1)])


def application(stub: Stub) -> web.Application:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", stub.handle)
    return app


@asynccontextmanager
async def serving() -> AsyncIterator[Stub]:
    stub = Stub()
    server = TestServer(application(stub))
    await server.start_server()
    stub.url = str(server.make_url("")).rstrip("/")
    try:
        yield stub
    finally:
        stub.release.set()
        await server.close()


async def eventually(holds: Callable[[], bool], deadline_s: float = 20.0) -> None:
    """Return once `holds` does; TimeoutError after `deadline_s`. The event loop goes on meanwhile."""
    async with asyncio.timeout(deadline_s):
        while not holds():
            await asyncio.sleep(0.005)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**content: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": None}]})


def usage(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}})


DONE = b"data: [DONE]\n\n"


async def _start(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-twin-instance": SLOT})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(delta(role="assistant", content=""))
    return response


async def _stream(request: web.Request, *parts: bytes) -> web.StreamResponse:
    response = await _start(request)
    for part in parts:
        await response.write(part)
    await response.write_eof()
    return response


async def _whole(request: web.Request, tokens: int) -> web.StreamResponse:
    return await _stream(request, delta(content="eight tokens"), usage(tokens), DONE)


async def _ok(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _whole(request, asked["max_tokens"])


async def _paced(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    """Eight tokens a chunk, a chunk each 0.16 s: what an instance at 20 ms a token sends."""
    response = await _start(request)
    for _ in range(0, asked["max_tokens"], 8):
        await response.write(delta(content="one two three four five six seven eight "))
        await asyncio.sleep(0.16)
    await response.write(usage(asked["max_tokens"]) + DONE)
    await response.write_eof()
    return response


async def _held(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    await stub.release.wait()
    return await _whole(request, asked["max_tokens"])


async def _short(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _whole(request, asked["max_tokens"] - 1)


async def _no_done(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _stream(request, delta(content="a"), usage(asked["max_tokens"]))


async def _no_usage(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _stream(request, delta(content="a"), DONE)


async def _stream_error(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _stream(request, delta(content="a"), event({"error": {"message": "out of memory"}}), DONE)


async def _empty(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _stream(request)


async def _cut(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    """The engine dies mid-stream: a 200 without the end that chunked coding demands."""
    response = await _start(request)
    await response.write(delta(content="half of"))
    assert request.transport is not None
    request.transport.close()
    return response


async def _reset(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    """Not a byte of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _refused(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": "queue is full"}, status=503, headers={"Retry-After": "1"})


async def _busy(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    """Refused, and welcome at once."""
    return web.json_response({"error": "queue is full"}, status=503, headers={"Retry-After": "0"})


async def _garbled(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return await _stream(request, delta(content="a"), b"data: {half\n\n", usage(asked["max_tokens"]), DONE)


async def _limited(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": "rate limit"}, status=429, headers={"Retry-After": "1"})


async def _down(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": "no server"}, status=503)


async def _broken(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(text="x" * 5000, status=500)


async def _moved(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": f"{stub.url}/v1/chat/completions?elsewhere"})


async def _unknown(stub: Stub, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {"message": f"no model {asked['model']}"}}, status=404)


ANSWERS: dict[str, Callable[[Stub, web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]] = {
    "ok": _ok,
    "paced": _paced,
    "held": _held,
    "short": _short,
    "no-done": _no_done,
    "no-usage": _no_usage,
    "stream-error": _stream_error,
    "empty": _empty,
    "cut": _cut,
    "reset": _reset,
    "refused": _refused,
    "busy": _busy,
    "garbled": _garbled,
    "limited": _limited,
    "down": _down,
    "broken": _broken,
    "moved": _moved,
}


if __name__ == "__main__":  # a server to measure the generator against: docs/traffic.md
    web.run_app(application(Stub()), host="127.0.0.1", port=int(sys.argv[1]))
