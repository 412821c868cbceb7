"""A small HTTP server for scrapes, that a silent or slow caller can neither block nor keep from ending."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from controlplane.ports import InvalidConfig

SILENCE_S = 5.0
"""A caller that says nothing, or reads nothing, for this long is let go."""

CONNECTIONS_MAX = 16
"""At once; the oldest goes where one more comes, so that a scrape always finds its place."""


class Page:
    """Serves `app` from threads of its own. Raises InvalidConfig, naming `option`, where it can't listen."""

    def __init__(self, host: str, port: int, app: Callable[..., Any], option: str) -> None:
        kind = _ServerV6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, app, kind, _Quiet)
        except OSError as error:
            raise InvalidConfig([f"{option}: cannot listen on {host}:{port}: {error.strerror}"]) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; answers under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **named: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(*args, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away, or was let go, is no news either."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6
