"""The twin's orchestrator: takes levels for instances over HTTP, and lists what there is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from aiohttp import web

from controlplane.twin.live.faults import DURATION_RANGE_S, number
from controlplane.twin.live.instance import TwinInstance
from controlplane.twin.live.lifecycle import Phase, Record
from controlplane.twin.live.orders import Order, parse, parse_adoption
from controlplane.twin.live.roster import Refused, Roster, Unknown

KEPT_ORDERS = 1000
SHOWN_GONE_S = 60.0
"""Seconds for which what is gone stays listed."""

GLANCE_S = 0.1


class Whim(StrEnum):
    """What can be ordered to go wrong with the orchestrator itself."""

    NONE = "none"
    DEAF = "deaf"  # says yes and does nothing
    SILENT = "silent"  # never answers an order


WHIM_HELP = {
    Whim.NONE: "takes orders again",
    Whim.DEAF: "answers every order with yes, and does nothing",
    Whim.SILENT: "never answers an order, and does nothing; the inventory goes on",
}


@dataclass(frozen=True, slots=True)
class Mood:
    """The fault in force. Times in epoch seconds; `until` None: until cleared."""

    kind: Whim
    since: float
    until: float | None


Answer = tuple[int, dict[str, Any]]
"""Status and JSON."""


class Orchestrator:
    """Instances by slot, and orders for them. `build` makes the engine of a record; `buried` is told of
    each slot that is gone."""

    def __init__(self, roster: Roster, build: Callable[[Record, Roster], TwinInstance]) -> None:
        self.roster = roster
        self.instances: dict[str, TwinInstance] = {}
        self.evicted: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.models: dict[str, set[str]] = {}
        self.buried: Callable[[str], None] = lambda _slot: None
        self._build = build
        self._orders: deque[dict[str, Any]] = deque(maxlen=KEPT_ORDERS)
        self._graves: deque[tuple[float, dict[str, Any]]] = deque()
        self._mood = Mood(Whim.NONE, roster.clock(), None)
        roster.buried = self._bury

    def routes(self, router: web.UrlDispatcher) -> None:
        """The paths of the write half."""
        router.add_put("/instances", lambda request: self._put(request, self.order))
        router.add_put("/adopt", lambda request: self._put(request, self.adopt))
        router.add_get("/orders", self._list)
        router.add_get("/orchestrator", self._show)
        router.add_post("/orchestrator", self._upset)

    async def stand(self, record: Record) -> None:
        """One that stands there at the start, serving or asleep. Raises OSError."""
        self.roster.add(record)
        await self._install(record).listen()

    async def stop(self) -> None:
        """End every engine."""
        for instance in list(self.instances.values()):
            await instance.stop()

    def rows(self) -> list[dict[str, Any]]:
        """The inventory's rows; what is gone is listed a while longer."""
        now = self.roster.clock()
        while self._graves and self._graves[0][0] <= now - SHOWN_GONE_S:
            self._graves.popleft()
        return [*map(_row, self.instances.values()), *(row for _, row in self._graves)]

    def order(self, body: object) -> Answer:
        """Take a level for an instance: done once however often it is said."""
        order = parse(body, self.roster.cluster)
        if self.mood is Whim.DEAF:
            return self._deaf(order.instance_id)
        try:
            changed = self.roster.order(order)
        except Refused as error:
            return web.HTTPConflict.status_code, {"error": str(error)}
        phase = self._carry_out(order, changed=changed)
        self._note(order, changed=changed)
        return web.HTTPOk.status_code, {"changed": changed, "phase": phase}

    def adopt(self, body: object) -> Answer:
        """Take an instance under management."""
        _, name = parse_adoption(body, self.roster.cluster)
        if self.mood is Whim.DEAF:
            return self._deaf(name)
        try:
            return web.HTTPOk.status_code, {"changed": self.roster.adopt(name)}
        except Unknown as error:
            return web.HTTPNotFound.status_code, {"error": str(error)}

    @property
    def mood(self) -> Whim:
        """What is wrong with it now."""
        if self._mood.until is not None and self.roster.clock() >= self._mood.until:
            self._mood = Mood(Whim.NONE, self._mood.until, None)
        return self._mood.kind

    def _deaf(self, name: str) -> Answer:
        record = self.roster.find(name)
        phase = Phase.REQUESTED if record is None else record.phase
        return web.HTTPOk.status_code, {"changed": True, "phase": phase}

    def _carry_out(self, order: Order, *, changed: bool) -> Phase:
        record = self.roster.find(order.instance_id)
        if record is None:
            return Phase.GONE
        instance = self.instances.get(record.slot) or self._install(record)
        if changed:
            instance.follow()
        return record.phase

    def _install(self, record: Record) -> TwinInstance:
        instance = self.instances[record.slot] = self._build(record, self.roster)
        self.models.setdefault(record.node, set()).add(instance.spec.model)
        return instance

    def _bury(self, record: Record) -> None:
        instance = self.instances.pop(record.slot)
        self._graves.append((self.roster.clock(), _row(instance)))
        self.evicted[record.slot] += instance.evicted
        self.broken[record.slot] += instance.broken
        self.buried(record.slot)

    def _note(self, order: Order, *, changed: bool) -> None:
        self._orders.append(
            {
                "action_id": order.action_id,
                "instance_id": order.instance_id,
                "state": order.level,
                "at": self.roster.clock(),
                "changed": changed,
            }
        )

    async def _put(self, request: web.Request, take: Callable[[object], Answer]) -> web.Response:
        if self.mood is Whim.SILENT:
            return await self._say_nothing(request)
        try:
            status, said = take(await read_json(request))
        except ValueError as error:
            status, said = web.HTTPBadRequest.status_code, {"error": str(error)}
        return web.json_response(said, status=status)

    async def _say_nothing(self, request: web.Request) -> web.Response:
        """Until it is over, or the caller is: what was not answered was not done either."""
        while self.mood is Whim.SILENT and request.transport is not None:
            await asyncio.sleep(GLANCE_S)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response(list(self._orders))

    async def _show(self, _request: web.Request) -> web.Response:
        _ = self.mood  # one whose time is up has ended
        return web.json_response(asdict(self._mood))

    async def _upset(self, request: web.Request) -> web.Response:
        try:
            self._mood = parse_mood(await read_json(request), self.roster.clock())
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=web.HTTPBadRequest.status_code)
        return web.json_response(asdict(self._mood))


def parse_mood(body: object, now: float) -> Mood:
    """A fault of the orchestrator from a request's JSON. ValueError says what is allowed."""
    if not isinstance(body, dict):  # a bad request, not a bad call
        raise ValueError('the body must be an object such as {"kind": "deaf"}')  # noqa: TRY004
    if unknown := sorted(set(body) - {"kind", "for_s"}):
        raise ValueError(f"unknown fields {unknown}; allowed: kind, for_s")
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in set(Whim):
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(Whim)}")
    until = None if body.get("for_s") is None else now + number(body, "for_s", 0.0, DURATION_RANGE_S)
    return Mood(Whim(kind), now, until)


async def read_json(request: web.Request) -> object:
    """A request's JSON, which is UTF-8 whatever a header says of its charset. Raises ValueError."""
    try:
        found: object = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise ValueError("the body is not JSON, or nested too deeply") from error
    return found


def _row(instance: TwinInstance) -> dict[str, Any]:
    record = instance.record
    return {
        "instance_id": record.instance_id,
        "pool": record.pool,
        "node": record.node,
        "tp": len(record.gpus),
        "gpus": list(record.gpus),
        "phase": record.phase,
        "address": instance.address,
        "started_at": record.started_at,
        "ready_at": record.ready_at,
        "lent_by": record.lent_by,
        "managed": record.managed,
    }
