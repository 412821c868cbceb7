"""HAProxy's tables in the domain's words: whose server is whose instance, and which process this is."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.adapters.gateways.haproxy.layout import server_name
from controlplane.adapters.gateways.haproxy.parse import BackendRow, Process, ServerRow, Tables
from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.gateway import BackendView, ServerState, ServerView
from controlplane.domain.ids import InstanceId, PoolName

Endpoint = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]

_START_TOLERANCE_S = 2
# HAProxy 2.6 tells its uptime in whole seconds, not its start: the difference to our clock wobbles.


@dataclass(frozen=True, slots=True)
class Epoch:
    """One HAProxy process: its pid and its start (epoch seconds, by our clock where it has none)."""

    pid: int
    started_at: int
    uptime_s: int

    def __str__(self) -> str:
        return f"{self.pid}@{self.started_at}"


def next_epoch(previous: Epoch | None, process: Process, now: float) -> Epoch:
    """The same epoch while it is the same process; a new one after a restart, even with the same pid."""
    start = process.started_at if process.started_at is not None else round(now) - process.uptime_s
    same = (
        previous is not None
        and previous.pid == process.pid
        and previous.uptime_s <= process.uptime_s
        and abs(previous.started_at - start) <= _START_TOLERANCE_S
    )
    started_at = previous.started_at if previous is not None and same else start
    return Epoch(process.pid, started_at, process.uptime_s)


def locate(found: Tables, instances: Iterable[Instance]) -> Mapping[InstanceId, ServerRow]:
    """The server of each instance this gateway knows, by pool, slot and address."""
    located = {}
    for instance in holders(instances):
        server = found.servers.get((instance.pool, server_name(instance.instance_id)))
        if server is not None and not elsewhere(server.address, instance.address):
            located[instance.instance_id] = server
    return located


def backends(found: Tables, instances: Iterable[Instance]) -> tuple[BackendView, ...]:
    """All backends; servers that no instance holds are strangers and left out (but their load counts).

    A gone instance is shown for as long as its server is there.
    """
    known = holders(instances)
    located = locate(found, known)
    by_pool: dict[PoolName, list[InstanceId]] = defaultdict(list)
    for instance in known:
        if instance.phase is not Phase.GONE or instance.instance_id in located:
            by_pool[instance.pool].append(instance.instance_id)
    return tuple(
        _backend(
            row, found.servers.values(), [(id_, located.get(id_)) for id_ in by_pool[PoolName(row.pool)]]
        )
        for row in found.backends
    )


def holders(instances: Iterable[Instance]) -> Sequence[Instance]:
    """Who holds each slot now: the latest start, since a slot outlives a restart in place. A gone one
    holds it until another lives there."""
    found: dict[tuple[str, str], Instance] = {}
    for instance in sorted(instances, key=_claim):
        found[instance.pool, server_name(instance.instance_id)] = instance
    return sorted(found.values(), key=lambda one: one.instance_id)


def _claim(instance: Instance) -> tuple[bool, float, str]:
    """The larger one wins the slot."""
    return instance.phase is not Phase.GONE, instance.started_at, instance.instance_id


def elsewhere(server: str, instance: str) -> bool:
    """Whether a server points to another address than the instance has. Names cannot be compared."""
    wanted = endpoint(instance)
    return wanted is not None and endpoint(server) != wanted


def endpoint(address: str) -> Endpoint | None:
    """Address and port of `ip:port` (brackets around IPv6 or not); None where the host is a name."""
    host, _, port = address.rpartition(":")
    try:
        return ipaddress.ip_address(host.strip("[]")), int(port)
    except ValueError:
        return None


def _backend(
    row: BackendRow, servers: Iterable[ServerRow], known: Sequence[tuple[InstanceId, ServerRow | None]]
) -> BackendView:
    mine = [server for server in servers if server.pool == row.pool]
    return BackendView(
        pool=PoolName(row.pool),
        queue=row.queue + sum(server.queue for server in mine),
        in_flight=sum(server.in_flight for server in mine),
        arrivals_total=row.arrivals_total,
        refused_total=row.denied_total + row.unserved_total,
        servers=tuple(_server(id_, server) for id_, server in known),
    )


def _server(instance: InstanceId, server: ServerRow | None) -> ServerView:
    if server is None:
        return ServerView(instance, ServerState.ABSENT, weight=0, limit=1, in_flight=0, completed_total=0)
    return ServerView(
        instance_id=instance,
        state=_state(server),
        weight=server.weight,
        limit=server.limit,
        in_flight=server.in_flight,
        completed_total=max(0, server.sessions_total - server.in_flight),
    )


def _state(server: ServerRow) -> ServerState:
    if server.closed:
        return ServerState.CLOSED
    return ServerState.DOWN if server.down else ServerState.OPEN
