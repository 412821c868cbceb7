"""Sockets that lines come in by: UDP datagrams, and TCP from a gateway's ring."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from controlplane.door.line import LONGEST
from controlplane.ports import InvalidConfig

RECEIVE_BYTES = 4 << 20
"""Of the UDP socket: a burst waits here while the last one is counted. Linux may grant less."""

_SO_RCVBUFFORCE = 33  # Linux; the socket module does not name it

CONNECTIONS_MAX = 64
"""Over TCP at once; a gateway's ring needs one. Whoever was silent longest goes where one more comes, and a
ring comes again."""

Take = Callable[[bytes], object]


class Receiver(asyncio.DatagramProtocol):
    """One address, UDP and TCP alike; each line goes to `take`, which must not raise."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._server: asyncio.Server | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._writers: dict[asyncio.StreamWriter, None] = {}

    async def open(self, host: str, port: int) -> int:
        """Listen; answers the port (of both, for 0). Raises InvalidConfig where one can't be had."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=LONGEST)
            port = self._server.sockets[0].getsockname()[1]
            self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: self, (host, port)
            )
        except OSError as error:
            await self.close()
            raise InvalidConfig([f"listen: cannot listen on {host}:{port}: {error.strerror}"]) from error
        _make_room(self._transport.get_extra_info("socket"))
        return port

    async def close(self) -> None:
        """Stop listening. Connections under way are broken off."""
        if self._server is not None:
            self._server.close()
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002
        """A datagram holds one line."""
        self._take(data.rstrip(b"\r\n\x00"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._admit(writer)
        try:
            while line := await _next(reader):
                self._heard(writer)
                self._take(line)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.pop(writer, None)
            writer.close()

    def _admit(self, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = None
        if len(self._writers) > CONNECTIONS_MAX:
            silent = next(iter(self._writers))
            del self._writers[silent]
            silent.transport.abort()

    def _heard(self, writer: asyncio.StreamWriter) -> None:
        """Who sends is let go last."""
        if writer in self._writers:
            del self._writers[writer]
            self._writers[writer] = None


def _make_room(receiver: socket.socket) -> None:
    """As much as asked for where we may say so, else as much as the system grants anybody."""
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with suppress(OSError):
            receiver.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BYTES)


async def _next(reader: asyncio.StreamReader) -> bytes:
    """The next line without its break; empty at the end. Half a line at the end, and one beyond all bounds,
    come as they are: they will be counted as malformed."""
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            line = await reader.readexactly(error.consumed)
        if stripped := line.rstrip(b"\r\n\x00"):
            return stripped
