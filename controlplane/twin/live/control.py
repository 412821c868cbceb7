"""The twin's own socket: who exists, where Prometheus finds it, what to break, and what was true."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from controlplane.twin.live.faults import Fault, FaultKind, parse, slot_of
from controlplane.twin.live.fleet import GPU_TYPE, GPUS_A_NODE, HOST_MEMORY_GIB
from controlplane.twin.live.gpu import Gpu, render
from controlplane.twin.live.instance import TwinInstance
from controlplane.twin.live.pace import Lateness

SAMPLE_S = 1.0
"""The sample period of the GPU counters, seconds."""

HELD_SHARE, LOADING_SHARE = 0.9, 0.2
"""Share of a card's memory that is taken: an engine claims its KV blocks at the start, all at once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one start of an engine had done by an instant; see `Pace.work`."""

    at: float
    process: object
    busy_s: float
    sequence_s: float


class Sampler:
    """Each instance's duty (0..1) and mean sequences in a step over the last sample period."""

    def __init__(self, instances: Mapping[str, TwinInstance], over: Callable[[TwinInstance], None]) -> None:
        self._instances, self._over = instances, over
        self._before: dict[str, Sample] = {}
        self.duty: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """Sample once a period, until cancelled; expired faults end here too."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            for slot, instance in self._instances.items():
                now = Sample(
                    asyncio.get_running_loop().time(), instance.process, *instance.process.pace.work()
                )
                self.duty[slot] = shares(self._before.get(slot), now)
                self._before[slot] = now
                if instance.fault is not None and instance.fault.over(time.time()):
                    self._over(instance)


def shares(before: Sample | None, now: Sample) -> tuple[float, float]:
    """Duty and mean sequences between two samples; zeros where no two of one process are there."""
    if before is None or before.process is not now.process:
        return 0.0, 0.0
    busy = now.busy_s - before.busy_s
    sequences = (now.sequence_s - before.sequence_s) / busy if busy > 0.0 else 0.0
    return min(1.0, busy / (now.at - before.at)), sequences


class Control:
    """The control application over all instances of one twin."""

    def __init__(
        self,
        cluster: str,
        owners: Mapping[str, str | None],
        instances: Mapping[str, TwinInstance],
        lateness: Lateness,
    ) -> None:
        self.cluster = cluster
        self.owners = owners
        self.instances = instances
        self.lateness = lateness
        self.sampler = Sampler(instances, self._end)
        self.exporters: dict[str, str] = {}
        self.ordered: list[dict[str, Any]] = []

    def application(self) -> web.Application:
        """Routes of the control socket."""
        app = web.Application()
        app.router.add_get("/sd/engines", self._engines)
        app.router.add_get("/sd/gpus", self._gpus)
        app.router.add_get("/inventory", self._inventory)
        app.router.add_get("/truth", self._truth)
        app.router.add_get("/faults", self._faults)
        app.router.add_post("/faults", self._order)
        app.router.add_delete("/faults/{instance}", self._clear)
        app.router.add_post("/drain/{instance}", self._drain)
        app.router.add_delete("/drain/{instance}", self._drain)
        return app

    def exporter(self, node: str) -> web.Application:
        """One node's GPU exporter."""

        async def metrics(_request: web.Request) -> web.Response:
            headers = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
            return web.Response(body=render(self._cards(node)), headers=headers)

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        return app

    def _cards(self, node: str) -> list[Gpu]:
        holders = {
            gpu: instance
            for instance in self.instances.values()
            if instance.spec.node == node
            for gpu in instance.spec.gpus
        }
        return [self._card(node, index, holders.get(index)) for index in range(GPUS_A_NODE)]

    def _card(self, node: str, index: int, holder: TwinInstance | None) -> Gpu:
        if holder is None:
            return Gpu(node, index, None, 0.0, 0.0, 1, throttled=False, memory_share=0.0)
        duty, sequences = self.sampler.duty.get(holder.spec.slot, (0.0, 0.0))
        throttled = holder.fault is not None and holder.fault.kind is FaultKind.THROTTLE
        memory = LOADING_SHARE if holder.phase == "loading" else HELD_SHARE
        seats = holder.spec.costs.max_num_seqs
        return Gpu(
            node, index, holder.spec.slot, duty, sequences, seats, throttled=throttled, memory_share=memory
        )

    async def _engines(self, _request: web.Request) -> web.Response:
        return web.json_response([self._target(instance) for instance in self.instances.values()])

    def _target(self, instance: TwinInstance) -> dict[str, Any]:
        spec = instance.spec
        labels = {
            "cluster": self.cluster,
            "pool": spec.pool,
            "instance_id": instance.instance_id,
            "node": spec.node,
            "pod": spec.slot,
            "namespace": "demo",
        }
        return {"targets": [instance.address], "labels": labels}

    async def _gpus(self, _request: web.Request) -> web.Response:
        return web.json_response(
            [
                {"targets": [address], "labels": {"cluster": self.cluster, "node": node}}
                for node, address in self.exporters.items()
            ]
        )

    async def _inventory(self, _request: web.Request) -> web.Response:
        nodes = [self._node(node, owner) for node, owner in self.owners.items()]
        rows = [self._row(instance) for instance in self.instances.values()]
        return web.json_response({"taken_at": time.time(), "nodes": nodes, "instances": rows})

    def _node(self, node: str, owner: str | None) -> dict[str, Any]:
        models = sorted({each.spec.model for each in self.instances.values() if each.spec.node == node})
        return {
            "node_id": node,
            "gpu_type": GPU_TYPE,
            "gpu_count": GPUS_A_NODE,
            "pool": owner,
            "unavailable_gpus": 0,
            "models": models,
            "host_memory_gib": HOST_MEMORY_GIB,
        }

    def _row(self, instance: TwinInstance) -> dict[str, Any]:
        return {
            "instance_id": instance.instance_id,
            "pool": instance.spec.pool,
            "node": instance.spec.node,
            "tp": len(instance.spec.gpus),
            "phase": instance.phase,
            "address": instance.address,
            "started_at": instance.process.started_at,
            "ready_at": instance.ready_at,
            "lent_by": None,
        }

    async def _truth(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "lag_p99_s": self.lateness.quantile(0.99),
                "lag_max_s": self.lateness.worst,
                "faults": self.ordered,
                "broken_requests": {
                    slot: each.broken for slot, each in self.instances.items() if each.broken
                },
                "speeds": {slot: each.spec.speed for slot, each in self.instances.items()},
            }
        )

    async def _faults(self, _request: web.Request) -> web.Response:
        return web.json_response([asdict(each.fault) for each in self.instances.values() if each.fault])

    async def _order(self, request: web.Request) -> web.Response:
        try:
            fault = parse(_read(await request.read()), frozenset(self.instances), time.time())
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        instance = self.instances[fault.slot]
        if instance.phase == "loading":
            problem = f"{fault.slot} is loading: nothing runs there that could break"
            return web.json_response({"error": problem}, status=409)
        self._end(instance)  # one fault at a time
        instance.order(fault)
        self.ordered.append({**asdict(fault), "cleared_at": None})
        return web.json_response(asdict(fault), status=201)

    async def _clear(self, request: web.Request) -> web.Response:
        instance = self.instances.get(slot_of(request.match_info["instance"]))
        if instance is None:
            return self._unknown(request.match_info["instance"])
        self._end(instance)
        return web.json_response({"cleared": instance.spec.slot})

    def _end(self, instance: TwinInstance) -> None:
        instance.order(None)
        for entry in self.ordered:
            if entry["slot"] == instance.spec.slot and entry["cleared_at"] is None:
                entry["cleared_at"] = time.time()

    async def _drain(self, request: web.Request) -> web.Response:
        instance = self.instances.get(slot_of(request.match_info["instance"]))
        if instance is None:
            return self._unknown(request.match_info["instance"])
        instance.drain(request.method == "POST")
        return web.json_response({"instance": instance.spec.slot, "phase": instance.phase})

    def _unknown(self, name: str) -> web.Response:
        known = ", ".join(sorted(self.instances))
        return web.json_response({"error": f"unknown instance {name!r}; known: {known}"}, status=404)


def _read(raw: bytes) -> object:
    """JSON is UTF-8 whatever a header says of its charset. ValueError says what is wrong."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError("the body is not JSON, or nested too deeply") from error


__all__ = ["Control", "Fault"]
