"""The process: lines in, series out, one look a second at the gateway."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from controlplane.adapters.gateways.haproxy.runtime import RuntimeSocket
from controlplane.door.beside import Beside
from controlplane.door.lost import Losses
from controlplane.door.receive import Receiver
from controlplane.door.tally import Tally
from controlplane.door.trace import TraceFile
from controlplane.telemetry.page import Page

LOOK_S = 1.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Wish:
    """Where lines come in (UDP and TCP), where series go out, whose runtime API is asked, and the edges."""

    log: Address
    metrics: Address
    socket: Path
    targets_s: tuple[float, ...] = ()
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that were had."""

    log: int
    metrics: int


def serve(wish: Wish, ready: Callable[[Ports], None]) -> None:
    """Run until SIGTERM or SIGINT. Raises InvalidConfig where it can't begin."""
    asyncio.run(_serve(wish, ready))


async def _serve(wish: Wish, ready: Callable[[Ports], None]) -> None:
    tally = Tally(wish.targets_s)
    beside = Beside(RuntimeSocket(wish.socket), tally, Losses(time.time()))
    trace = None if wish.trace is None else TraceFile(wish.trace)
    receiver = Receiver(_taker(tally, trace))
    ended = _ended()
    try:
        log = await receiver.open(*wish.log)
        page = Page(*wish.metrics, _app(tally, _registry(beside, trace)), "metrics")
        try:
            ready(Ports(log, page.port))
            await _look_until(ended, beside)
        finally:
            page.close()
    finally:
        await receiver.close()
        if trace is not None:
            trace.close()


def _taker(tally: Tally, trace: TraceFile | None) -> Callable[[bytes], None]:
    def take(raw: bytes) -> None:
        line = tally.take(raw)
        if line is not None and trace is not None:
            trace.write(line)

    return take


def _ended() -> asyncio.Event:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    return ended


async def _look_until(ended: asyncio.Event, beside: Beside) -> None:
    while not ended.is_set():
        await asyncio.to_thread(beside.look)
        try:
            await asyncio.wait_for(ended.wait(), LOOK_S)
        except TimeoutError:
            continue


def _registry(beside: Beside, trace: TraceFile | None) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(beside)
    if trace is not None:
        unwritten = Gauge(
            "trimtab_door_unwritten_rows", "Rows that the trace could not take.", registry=registry
        )
        unwritten.set_function(lambda: trace.unwritten)
    return registry


def _app(tally: Tally, registry: CollectorRegistry) -> Callable[..., Iterable[bytes]]:
    """Plain text, not compressed: a scrape comes from near, and packing cost as much as writing."""

    def app(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [("Allow", "GET")])
            return [b""]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [tally.page().encode(), generate_latest(registry)]

    return app
