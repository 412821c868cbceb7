"""A gateway in memory: levels are kept, read back, lost at a restart, and fail when ordered to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controlplane.adapters.memory.faults import Faults
from controlplane.domain.gateway import (
    BackendView,
    Capabilities,
    GatewayView,
    ServerState,
    ServerView,
    WeightMeaning,
)
from controlplane.domain.ids import ActionId, InstanceId, PoolName
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.ports import Clock, OutcomeUnknown, Refused, Unavailable

CAPABILITIES = Capabilities(
    per_instance_limit=True,
    central_queue=True,
    priority=False,
    zero_weight=True,
    ramp=False,
    weight_meaning=WeightMeaning.CONCURRENCY_WHEN_BUSY,
    weight_max=256,
)

Outcome = tuple[ActionState, str]


@dataclass(slots=True)
class PoolTraffic:
    """What a pool shows of traffic; tests set it. `refused` and `arrivals` are totals."""

    queue: int = 0
    arrivals: int = 0
    refused: int = 0


@dataclass(slots=True)
class MemoryGateway:
    """The gateway port over plain values.

    `reads` orders faults of `read`, `writes` of `apply`: Unavailable makes every action
    failed, Refused refused, OutcomeUnknown unknown. `lands_when_unknown`: whether such an
    unanswered write took effect after all. `sent` keeps what was asked, in order.
    """

    name: str
    clock: Clock
    servers: dict[PoolName, dict[InstanceId, ServerView]]
    capabilities: Capabilities = CAPABILITIES
    traffic: dict[PoolName, PoolTraffic] = field(default_factory=dict)
    reads: Faults = field(default_factory=Faults)
    writes: Faults = field(default_factory=Faults)
    lands_when_unknown: bool = False
    sent: list[tuple[ActionId, Action]] = field(default_factory=list)
    _starts: int = 1

    @classmethod
    def of(
        cls,
        name: str,
        clock: Clock,
        pools: Mapping[PoolName, Sequence[InstanceId]],
        weight: int = 100,
        limit: int = 8,
    ) -> MemoryGateway:
        """A gateway whose servers are all open at one weight and one limit."""
        return cls(
            name,
            clock,
            {
                pool: {one: ServerView(one, ServerState.OPEN, weight, limit, 0, 0) for one in instances}
                for pool, instances in pools.items()
            },
        )

    def read(self) -> GatewayView:
        """The state now. Raises Unavailable when ordered to."""
        self.reads.check()
        return GatewayView(
            gateway=self.name,
            read_at=self.clock.wall(),
            epoch=f"start-{self._starts}",
            capabilities=self.capabilities,
            backends=tuple(self._backend(pool) for pool in self.servers),
        )

    def apply(self, actions: Sequence[tuple[ActionId, Action]]) -> Mapping[ActionId, Outcome]:
        """Keep the levels, or show the ordered fault for every action."""
        self.sent.extend(actions)
        try:
            self.writes.check()
        except OutcomeUnknown as error:
            if self.lands_when_unknown:
                self._keep_all(actions)
            return {id_: (ActionState.UNKNOWN, str(error)) for id_, _ in actions}
        except Refused as error:
            return {id_: (ActionState.REFUSED, str(error)) for id_, _ in actions}
        except Unavailable as error:
            return {id_: (ActionState.FAILED, str(error)) for id_, _ in actions}
        return self._keep_all(actions)

    def restart(self, weight: int = 100, limit: int = 8) -> None:
        """Another process: every server as its file says, totals from zero, another epoch."""
        self._starts += 1
        for pool, servers in self.servers.items():
            self.traffic[pool] = PoolTraffic()
            for one in servers:
                servers[one] = ServerView(one, ServerState.OPEN, weight, limit, 0, 0)

    def put(self, pool: PoolName, server: ServerView) -> None:
        """Somebody else's hand, or traffic: a server is now as given."""
        self.servers[pool][server.instance_id] = server

    def _backend(self, pool: PoolName) -> BackendView:
        servers, traffic = self.servers[pool], self.traffic.get(pool, PoolTraffic())
        return BackendView(
            pool=pool,
            queue=traffic.queue,
            in_flight=sum(server.in_flight for server in servers.values()),
            arrivals_total=traffic.arrivals,
            refused_total=traffic.refused,
            servers=tuple(servers.values()),
        )

    def _keep_all(self, actions: Sequence[tuple[ActionId, Action]]) -> dict[ActionId, Outcome]:
        return {id_: self._keep(action) for id_, action in actions}

    def _keep(self, action: Action) -> Outcome:
        if action.kind in {ActionKind.ADD, ActionKind.REMOVE}:
            return self._member(action)
        server = self.servers.get(action.pool, {}).get(action.instance or InstanceId(""))
        if server is None:
            return ActionState.FAILED, f"this gateway has no server for {action.instance}"
        if action.kind is ActionKind.SET_LIMIT and action.level < 1:
            return ActionState.REFUSED, f"limit {action.level} is below 1"
        changed = _changed(server, action)
        if changed == server:
            return ActionState.UNCHANGED, f"{action.kind} {action.level} already"
        self.put(action.pool, changed)
        return ActionState.APPLIED, f"{action.kind} {action.level}"

    def _member(self, action: Action) -> Outcome:
        """Come and go as a gateway's own rules have it: new ones are closed and small, who leaves is idle."""
        servers, one = self.servers.get(action.pool), action.instance or InstanceId("")
        if servers is None:
            return ActionState.FAILED, f"this gateway has no backend {action.pool}"
        found = servers.get(one)
        there = found is not None and found.state is not ServerState.ABSENT
        if there is bool(action.level):
            return ActionState.UNCHANGED, f"{action.kind} {action.level} already"
        if found is not None and there and (found.state is not ServerState.CLOSED or found.in_flight):
            return ActionState.FAILED, f"it is {found.state} with {found.in_flight} requests in flight"
        if there:
            del servers[one]
        else:
            servers[one] = ServerView(one, ServerState.CLOSED, 1, 1, 0, 0)
        return ActionState.APPLIED, f"{action.kind} {action.level}"


def _changed(server: ServerView, action: Action) -> ServerView:
    match action.kind:
        case ActionKind.SET_WEIGHT:
            return replace(server, weight=action.level)
        case ActionKind.SET_LIMIT:
            return replace(server, limit=action.level)
        case ActionKind.CLOSE:
            return replace(server, state=ServerState.CLOSED)
        case _:
            return replace(server, state=ServerState.OPEN)
