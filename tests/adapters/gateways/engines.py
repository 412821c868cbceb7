"""A small engine that streams server-sent events, and whose every step a test can hold or see."""

from __future__ import annotations

import json
import select
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIRST = b"data: first\n\n"
LAST = b"data: [DONE]\n\n"
PATIENCE_S = 20.0
"""No request is held longer than this, whatever a test forgets."""


@dataclass
class Engine:
    """Answers each POST with headers and FIRST at once, and LAST when the test lets it finish.

    `free`: requests finish by themselves. Else `finish(n)` lets n of them end. `silent`:
    nothing is sent before a request may finish, not even headers. `thinks`: headers at once,
    and the first token only when the request may finish. `status` other than 200
    is answered at once. Counters: `in_flight`, `peak`, `served`, `gone` (callers that left).
    """

    free: bool = True
    silent: bool = False
    thinks: bool = False
    status: int = 200
    in_flight: int = 0
    peak: int = 0
    served: int = 0
    gone: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._may_finish = threading.Semaphore(0)
        engine = self

        class Handler(_Handler):
            owner = engine

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def hold(self) -> None:
        self.free = False

    def finish(self, requests: int = 1) -> None:
        self._may_finish.release(requests)

    def finish_all(self) -> None:
        self.free = True

    def close(self) -> None:
        self.free = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def may_finish(self) -> bool:
        """Whether the asking request may end now; waits a moment."""
        return self.free or self._may_finish.acquire(timeout=0.01)

    def enter(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._lock:
            self.requests.append((path, headers, body))
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)

    def leave(self, *, gone: bool) -> None:
        with self._lock:
            self.in_flight -= 1
            self.gone += gone
            self.served += not gone


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a handler that waits for a caller must not hold the test's end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that left in the middle is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    owner: Engine
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Tests read counters, not logs."""

    def do_GET(self) -> None:
        self._answer(b"{}", "application/json")

    def do_POST(self) -> None:
        body = self._body()
        self.owner.enter(self.path, dict(self.headers.items()), body)
        stayed = False
        try:
            stayed = self.owner.status != 200 or self._stream()
        except OSError:  # the caller left while something was being sent
            stayed = False
        # Counted before the end is sent: HAProxy may send the next request on seeing it.
        self.owner.leave(gone=not stayed)
        if stayed:
            self._end()

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return data

    def _end(self) -> None:
        if self.owner.status == 200:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        else:
            self.send_response(self.owner.status)
            self.send_header("content-length", "0")
            self.end_headers()

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> bool:
        """All but the end; whether the caller stayed."""
        if not self.owner.silent:
            self._headers()
        if not (self.owner.silent or self.owner.thinks):
            self._send(FIRST)
        if not self._held():
            return False
        if self.owner.silent:
            self._headers()
        self._send(LAST)
        return True

    def _headers(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _send(self, chunk: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.flush()

    def _held(self) -> bool:
        """Wait for leave to finish; False as soon as the caller is seen to have left."""
        for _ in range(int(PATIENCE_S / 0.01)):
            if self.owner.may_finish():
                return True
            if _left(self.connection):
                self.close_connection = True
                return False
        return False


def _left(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""


def chat(model: object = "llama-3.1-8b", **more: object) -> bytes:
    """A request body as clients send it."""
    return json.dumps({"model": model, "stream": True, **more}).encode()
