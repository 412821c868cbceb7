"""HTTP that can be broken off: a socket's own timeout starts again with every byte that trickles in.

`requests` offers no total deadline. So each request runs on a lane that remembers its
connection, and whoever waits for it shuts the socket when time is up (B-059).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

_HERE = threading.local()


class LaneClosed(Exception):
    """The request was broken off before it was sent."""


class Lane:
    """One request under way, from its thread (`with lane:`) and from the one that waits (`shut`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self.closed = False

    def __enter__(self) -> Lane:
        _HERE.lane = self
        return self

    def __exit__(self, *_: object) -> None:
        _HERE.lane = None
        with self._lock:
            self._connection = None

    def carries(self, connection: HTTPConnection) -> None:
        """Remember the connection that this lane's request leaves on. Raises LaneClosed when shut."""
        with self._lock:
            if self.closed:
                raise LaneClosed
            self._connection = connection

    def shut(self) -> None:
        """Break the request off: the blocked read returns at once. May be called at any moment."""
        with self._lock:
            self.closed = True
            sock = self._connection.sock if self._connection else None
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _announce(connection: HTTPConnection) -> None:
    lane: Lane | None = getattr(_HERE, "lane", None)
    if lane is not None:
        lane.carries(connection)


class _Plain(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        _announce(self)
        super().request(*args, **kwargs)


class _Secure(HTTPSConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        _announce(self)
        super().request(*args, **kwargs)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class LaneAdapter(HTTPAdapter):
    """A transport without retries whose requests can be broken off."""

    def __init__(self, lanes: int) -> None:
        super().__init__(pool_connections=1, pool_maxsize=lanes, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Build the pools with our connections in them."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
