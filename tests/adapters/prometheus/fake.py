"""A Prometheus that misbehaves on command: each query's text says how."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs


@dataclass
class Request:
    """What reached the server."""

    line: str
    headers: dict[str, str]
    form: dict[str, str]


Fault = Callable[[socket.socket, "FakePrometheus"], None]


@dataclass
class FakePrometheus:
    """`faults`: behaviour by query text; every other query gets one good sample."""

    url: str = ""
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def queries(self) -> list[str]:
        """The queries that came, in order."""
        return [request.form.get("query", "") for request in self.requests]


def vector(*samples: tuple[dict[str, str], str], at: float = 1767225600.0, **envelope: object) -> str:
    """A whole good answer as JSON text."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in samples]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data, **envelope})


def http(body: str | bytes, status: str = "200 OK", headers: str = "", length: int | None = None) -> Fault:
    """An HTTP answer; `length` other than the body's cuts it short."""
    payload = body.encode() if isinstance(body, str) else body
    size = len(payload) if length is None else length

    def answer(connection: socket.socket, _: FakePrometheus) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n{headers}\r\n"
        connection.sendall(head.encode() + payload)

    return answer


def raw(text: str, *, then_wait: bool = False) -> Fault:
    """Bytes as they are; with `then_wait` the connection stays open and silent until the test is over."""

    def answer(connection: socket.socket, server: FakePrometheus) -> None:
        connection.sendall(text.encode())
        if then_wait:
            server.over.wait()

    return answer


def drip(head: str) -> Fault:
    """After `head` one byte every 50 ms, for ever: no read of it ever times out."""

    def answer(connection: socket.socket, server: FakePrometheus) -> None:
        connection.sendall(head.encode())
        while not server.over.wait(0.05):
            connection.sendall(b" ")

    return answer


GOOD = http(vector(({"who": "good"}, "1")), headers="Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n")


@contextmanager
def fake_prometheus() -> Iterator[FakePrometheus]:
    """The server, on a free loopback port."""
    fake = FakePrometheus()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = self._request()
            fake.requests.append(request)
            with suppress(OSError):
                fake.faults.get(request.form.get("query", ""), GOOD)(self.connection, fake)

        def _request(self) -> Request:
            line = self.rfile.readline().decode().strip()
            headers = {}
            while (row := self.rfile.readline().decode().strip()) != "":
                name, _, value = row.partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            return Request(line, headers, form)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            fake.over.set()
            server.shutdown()
            thread.join(5)
