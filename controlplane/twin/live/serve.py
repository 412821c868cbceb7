"""The twin as a process: sockets up, one line on standard output, and gone on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web

from controlplane.twin.live.control import Control
from controlplane.twin.live.fleet import (
    FLEETS,
    GPUS_A_NODE,
    HOST_MEMORY_GIB,
    Seat,
    costs_of,
    seats,
    spread,
)
from controlplane.twin.live.instance import CLOSE_S, Notes, Spec, TwinInstance
from controlplane.twin.live.lifecycle import Level, Phase, Record
from controlplane.twin.live.orchestrator import Orchestrator
from controlplane.twin.live.roster import Bounds, Roster, instance_id


@dataclass(frozen=True, slots=True)
class Settings:
    """How to play a fleet. `port` 0 takes a free one; `cold_start_s` seconds until weights are loaded;
    `wake_s` until a sleeper is awake (None: as its pool says); `host_memory_gib` of a node."""

    fleet: str
    cluster: str
    host: str
    port: int
    seed: int
    chunk: int
    cold_start_s: float
    wake_s: float | None = None
    host_memory_gib: float = HOST_MEMORY_GIB


LEAVE_S = 0.5
"""Seconds that an engine takes to fall asleep, or to end."""


async def serve(settings: Settings, ready: Callable[[dict[str, object]], None]) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError where a socket can't be bound."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    placed, owners = seats(settings.fleet, settings.seed)
    notes = Notes()
    builder = Builder(settings, notes)
    roster = Roster(settings.cluster, _bounds(settings, owners), time.time)
    orchestrator = Orchestrator(roster, builder.build)
    control = Control(settings.cluster, owners, settings.host_memory_gib, orchestrator, notes)
    async with contextlib.AsyncExitStack() as stack:
        address = await _listen(stack, control.application(), settings.host, settings.port)
        for node in owners:
            control.exporters[node] = await _listen(stack, control.exporter(node), settings.host, 0)
        stack.push_async_callback(orchestrator.stop)
        for seat in placed:
            builder.speeds.setdefault((seat.node, seat.gpus), seat.speed)
            await orchestrator.stand(_record(settings.cluster, seat))
        sampling = asyncio.create_task(control.sampler.run())
        ready({"control": int(address.rpartition(":")[2]), "instances": len(placed), "fleet": settings.fleet})
        await stop.wait()
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling


def _bounds(settings: Settings, nodes: Iterable[str]) -> Bounds:
    plans = FLEETS[settings.fleet][0]
    return Bounds(
        nodes=dict.fromkeys(nodes, GPUS_A_NODE),
        tp={plan.name: plan.tp for plan in plans},
        weights_gib={plan.name: plan.weights_gib for plan in plans},
        host_memory_gib=settings.host_memory_gib,
    )


def _record(cluster: str, seat: Seat) -> Record:
    """One that stands there at the start."""
    now = time.time()
    return Record(
        instance_id=instance_id(cluster, seat.slot, now),
        pool=seat.pool.name,
        node=seat.node,
        gpus=seat.gpus,
        lent_by=None if seat.asleep else seat.pool.lent_by,
        managed=seat.asleep or seat.pool.managed,
        started_at=now,
        phase=Phase.ASLEEP if seat.asleep else Phase.SERVING,
        wanted=Level.ASLEEP if seat.asleep else Level.AWAKE,
        ready_at=None if seat.asleep else now,
    )


class Builder:
    """Makes the engine of a slot. `speeds`: of cards, by node and indices."""

    def __init__(self, settings: Settings, notes: Notes) -> None:
        self._settings, self._notes = settings, notes
        self._plans = {plan.name: plan for plan in FLEETS[settings.fleet][0]}
        self.speeds: dict[tuple[str, tuple[int, ...]], float] = {}

    def build(self, record: Record, roster: Roster) -> TwinInstance:
        """An engine for this record; its port is held, and nothing runs yet."""
        plan, settings = self._plans[record.pool], self._settings
        spec = Spec(
            model=plan.model,
            costs=costs_of(plan),
            chunk=settings.chunk,
            speed=self._speed(record),
            cold_start_s=settings.cold_start_s if plan.cold_start_s is None else plan.cold_start_s,
            wake_s=plan.wake_s if settings.wake_s is None else settings.wake_s,
            leave_s=LEAVE_S,
        )
        return TwinInstance(spec, record, roster, settings.host, self._notes)

    def _speed(self, record: Record) -> float:
        """Whoever comes to the same cards finds the same ones."""
        cards = record.node, record.gpus
        drawn = spread(random.Random(f"{self._settings.seed} {cards}"))  # noqa: S311 - no secret
        return self.speeds.setdefault(cards, drawn)


async def _listen(stack: contextlib.AsyncExitStack, app: web.Application, host: str, port: int) -> str:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port).start()
    return f"{host}:{runner.addresses[0][1]}"


def announce(facts: dict[str, object]) -> None:
    """One JSON line for whoever started us."""
    print(json.dumps(facts), file=sys.stdout, flush=True)
