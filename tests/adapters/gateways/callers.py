"""Callers of a gateway: whole requests, streams that can be watched, and many at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.adapters.gateways.engines import chat

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error_code(self) -> str:
        return str(self.json()["error"]["code"])


def ask(
    port: int,
    body: bytes | Iterable[bytes] | None = None,
    path: str = CHAT,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request to its end. An iterable body is sent chunked."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(
            method,
            path,
            body=body,
            headers=dict(headers or {}),
            encode_chunked=body is not None and not isinstance(body, bytes),
        )
        answer = connection.getresponse()
        read = answer.read()
        return Reply(answer.status, {key.lower(): value for key, value in answer.getheaders()}, read)


class Stream:
    """A request whose answer is read piece by piece; leaving is closing."""

    def __init__(self, port: int, body: bytes | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._connection.request("POST", CHAT, body=chat() if body is None else body)
        self._answer: http.client.HTTPResponse | None = None

    @property
    def answer(self) -> http.client.HTTPResponse:
        if self._answer is None:
            self._answer = self._connection.getresponse()
        return self._answer

    def read_some(self) -> bytes:
        """The next bytes, as soon as there are any."""
        return self.answer.read1(4096)

    def read_rest(self) -> bytes:
        """To the end, and leave."""
        try:
            return self.answer.read()
        finally:
            self.leave()

    def leave(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._connection.close()


@dataclass
class Crowd:
    """Many callers at once, each in a thread of its own."""

    port: int
    replies: list[Reply] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def send(self, count: int, body: bytes | None = None) -> Crowd:
        for _ in range(count):
            thread = threading.Thread(target=self._one, args=(chat() if body is None else body,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def _one(self, body: bytes) -> None:
        self.replies.append(ask(self.port, body))

    def statuses(self) -> list[int]:
        return sorted(reply.status for reply in self.replies)

    def join(self) -> list[int]:
        for thread in self._threads:
            thread.join(20)
        return self.statuses()
