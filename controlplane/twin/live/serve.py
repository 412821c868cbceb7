"""The twin as a process: sockets up, one line on standard output, and gone on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from controlplane.twin.live.control import Control
from controlplane.twin.live.fleet import Seat, costs_of, seats
from controlplane.twin.live.instance import Spec, TwinInstance
from controlplane.twin.live.pace import Lateness


@dataclass(frozen=True, slots=True)
class Settings:
    """How to play a fleet. `port` 0 takes a free one; `cold_start_s` seconds after a restart."""

    fleet: str
    cluster: str
    host: str
    port: int
    seed: int
    chunk: int
    cold_start_s: float


async def serve(settings: Settings, ready: Callable[[dict[str, object]], None]) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError where a socket can't be bound."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lateness = Lateness()
    placed, owners = seats(settings.fleet, settings.seed)
    instances = {seat.slot: _instance(settings, seat, lateness) for seat in placed}
    control = Control(settings.cluster, owners, instances, lateness)
    async with contextlib.AsyncExitStack() as stack:
        address = await _listen(stack, control.application(), settings.host, settings.port)
        for node in owners:
            control.exporters[node] = await _listen(stack, control.exporter(node), settings.host, 0)
        for instance in instances.values():
            stack.push_async_callback(instance.stop)
            await instance.start(loaded=True)
        sampling = asyncio.create_task(control.sampler.run())
        ready(
            {"control": int(address.rpartition(":")[2]), "instances": len(instances), "fleet": settings.fleet}
        )
        await stop.wait()
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling


def _instance(settings: Settings, seat: Seat, lateness: Lateness) -> TwinInstance:
    spec = Spec(
        cluster=settings.cluster,
        slot=seat.slot,
        pool=seat.pool.name,
        model=seat.pool.model,
        node=seat.node,
        gpus=seat.gpus,
        costs=costs_of(seat.pool),
        chunk=settings.chunk,
        speed=seat.speed,
        cold_start_s=settings.cold_start_s,
    )
    return TwinInstance(spec, settings.host, lateness)


async def _listen(stack: contextlib.AsyncExitStack, app: web.Application, host: str, port: int) -> str:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port).start()
    return f"{host}:{runner.addresses[0][1]}"


def announce(facts: dict[str, object]) -> None:
    """One JSON line for whoever started us."""
    print(json.dumps(facts), file=sys.stdout, flush=True)
