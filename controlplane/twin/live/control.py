"""The twin's own socket: who exists, where Prometheus finds it, what to break, and what was true."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from controlplane.twin.live import ledger
from controlplane.twin.live.faults import Fault, FaultKind, parse, slot_of
from controlplane.twin.live.fleet import GPU_TYPE, GPUS_A_NODE
from controlplane.twin.live.gpu import Gpu, render
from controlplane.twin.live.instance import Notes, TwinInstance
from controlplane.twin.live.lifecycle import LISTED, UNBREAKABLE, Phase, Record
from controlplane.twin.live.orchestrator import Orchestrator, read_json

SAMPLE_S = 1.0
"""The sample period of the GPU counters, seconds."""

HELD_SHARE, LOADING_SHARE, ASLEEP_SHARE = 0.9, 0.2, 0.1
"""Share of a card's memory that is taken: an engine claims its KV blocks at the start, all at once; one
that sleeps keeps a tenth."""

COMES = frozenset({Phase.REQUESTED, Phase.LOADING, Phase.WAKING})


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
            at = asyncio.get_running_loop().time()
            now = {
                slot: Sample(at, each.process, *each.process.pace.work())
                for slot, each in self._instances.items()
            }
            self.duty = {slot: shares(self._before.get(slot), each) for slot, each in now.items()}
            self._before = now
            self._end_faults()

    def _end_faults(self) -> None:
        now = time.time()
        for instance in self._instances.values():
            if instance.fault is not None and instance.fault.over(now):
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
        host_memory_gib: float,
        orchestrator: Orchestrator,
        notes: Notes,
    ) -> None:
        self.cluster = cluster
        self.owners = owners
        self.host_memory_gib = host_memory_gib
        self.orchestrator = orchestrator
        self.instances = orchestrator.instances
        self.notes = notes
        self.sampler = Sampler(self.instances, self._end)
        self.exporters: dict[str, str] = {}
        self.ordered: list[dict[str, Any]] = []
        orchestrator.buried = self._note_end

    def application(self) -> web.Application:
        """Routes of the control socket."""
        app = web.Application()
        app.router.add_get("/sd/engines", self._engines)
        app.router.add_get("/sd/gpus", self._gpus)
        app.router.add_get("/inventory", self._inventory)
        app.router.add_get("/truth", self._truth)
        app.router.add_get("/truth/streams", self._streams)
        app.router.add_get("/faults", self._faults)
        app.router.add_post("/faults", self._order)
        app.router.add_delete("/faults/{instance}", self._clear)
        app.router.add_post("/drain/{instance}", self._drain)
        app.router.add_delete("/drain/{instance}", self._drain)
        self.orchestrator.routes(app.router)
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
        records = self.orchestrator.roster.records.values()
        awake, asleep = ledger.holders(records, node), ledger.sleepers(records, node)
        return [
            self._card(node, index, awake.get(index), ASLEEP_SHARE * asleep.get(index, 0))
            for index in range(GPUS_A_NODE)
        ]

    def _card(self, node: str, index: int, holder: Record | None, asleep_share: float) -> Gpu:
        if holder is None:
            return Gpu(node, index, None, 0.0, 0.0, 1, throttled=False, memory_share=asleep_share)
        instance = self.instances[holder.slot]
        duty, sequences = self.sampler.duty.get(holder.slot, (0.0, 0.0))
        throttled = instance.fault is not None and instance.fault.kind is FaultKind.THROTTLE
        memory = LOADING_SHARE if holder.phase in COMES else HELD_SHARE
        seats = instance.spec.costs.max_num_seqs
        share = min(1.0, memory + asleep_share)
        return Gpu(node, index, holder.slot, duty, sequences, seats, throttled=throttled, memory_share=share)

    async def _engines(self, _request: web.Request) -> web.Response:
        return web.json_response(
            [self._target(each) for each in self.instances.values() if each.record.phase in LISTED]
        )

    def _target(self, instance: TwinInstance) -> dict[str, Any]:
        record = instance.record
        labels = {
            "cluster": self.cluster,
            "pool": record.pool,
            "instance_id": record.instance_id,
            "node": record.node,
            "pod": record.slot,
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
        rows = self.orchestrator.rows()
        return web.json_response({"taken_at": time.time(), "nodes": nodes, "instances": rows})

    def _node(self, node: str, owner: str | None) -> dict[str, Any]:
        return {
            "node_id": node,
            "gpu_type": GPU_TYPE,
            "gpu_count": GPUS_A_NODE,
            "pool": owner,
            "unavailable_gpus": 0,
            "models": sorted(self.orchestrator.models.get(node, ())),
            "host_memory_gib": self.host_memory_gib,
        }

    async def _truth(self, _request: web.Request) -> web.Response:
        present = self.instances.items()
        broken = self.orchestrator.broken + Counter({slot: each.broken for slot, each in present})
        evicted = self.orchestrator.evicted + Counter({slot: each.evicted for slot, each in present})
        return web.json_response(
            {
                "lag_p99_s": self.notes.lateness.quantile(0.99),
                "lag_max_s": self.notes.lateness.worst,
                "faults": self.ordered,
                "broken_requests": broken,
                "evicted_requests": evicted,
                "speeds": {slot: each.spec.speed for slot, each in present},
                "lives": list(self.orchestrator.roster.lives),
            }
        )

    async def _streams(self, _request: web.Request) -> web.Response:
        return web.json_response(self.notes.transcripts.told())

    async def _faults(self, _request: web.Request) -> web.Response:
        return web.json_response([asdict(each.fault) for each in self.instances.values() if each.fault])

    async def _order(self, request: web.Request) -> web.Response:
        try:
            fault = parse(await read_json(request), frozenset(self.instances), time.time())
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        instance = self.instances[fault.slot]
        if instance.record.phase in UNBREAKABLE:
            problem = f"{fault.slot} is {instance.record.phase}: nothing runs there that could break"
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
        return web.json_response({"cleared": instance.slot})

    def _end(self, instance: TwinInstance) -> None:
        instance.order(None)
        self._note_end(instance.slot)

    def _note_end(self, slot: str) -> None:
        """A fault ended: it was cleared, its time was up, or its instance is gone."""
        for entry in self.ordered:
            if entry["slot"] == slot and entry["cleared_at"] is None:
                entry["cleared_at"] = time.time()

    async def _drain(self, request: web.Request) -> web.Response:
        instance = self.instances.get(slot_of(request.match_info["instance"]))
        if instance is None:
            return self._unknown(request.match_info["instance"])
        self.orchestrator.roster.drain(instance.record, on=request.method == "POST")
        return web.json_response({"instance": instance.slot, "phase": instance.record.phase})

    def _unknown(self, name: str) -> web.Response:
        known = ", ".join(sorted(self.instances))
        return web.json_response({"error": f"unknown instance {name!r}; known: {known}"}, status=404)


__all__ = ["Control", "Fault"]
