"""Who stands in the file: pools from policies, servers from the inventory, levels as they are now. Pure.

After a restart HAProxy has only its file, so the file is rendered anew after each
membership change, with the levels the running process has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from controlplane.adapters.gateways.haproxy.layout import (
    GatewayLayout,
    PoolLayout,
    ServerLayout,
    server_name,
)
from controlplane.domain.fleet import Instance, Inventory, Phase
from controlplane.domain.gateway import GatewayView, ServerState, ServerView
from controlplane.domain.policy import Policies, PoolPolicy, Routing
from controlplane.domain.profile import Profile

_TAKES_NOTHING = frozenset({Phase.DRAINING, Phase.ASLEEP, Phase.HOT})
# Instances on their way are rendered open: HAProxy's own check lets them in once they answer.


def pool_layouts(policies: Policies, inventory: Inventory) -> tuple[PoolLayout, ...]:
    """One backend for each pool that this gateway routes, whether it has instances now or not."""
    return tuple(
        PoolLayout(
            pool=policy.pool,
            models=(policy.model,),
            servers=_servers(policy, policies.profiles[policy.profile], inventory.instances),
        )
        for policy in policies.pools.values()
        if policy.routing is Routing.GATEWAY
    )


def with_levels(layout: GatewayLayout, view: GatewayView) -> GatewayLayout:
    """The same layout with the weights, limits and drains that the running gateway has.

    Servers that the gateway does not have keep the layout's own levels.
    """
    seen = {
        (backend.pool, server_name(server.instance_id)): server
        for backend in view.backends
        for server in backend.servers
        if server.state is not ServerState.ABSENT
    }
    pools = tuple(
        replace(pool, servers=tuple(_as_seen(one, seen.get((pool.pool, one.name))) for one in pool.servers))
        for pool in layout.pools
    )
    return replace(layout, pools=pools)


def limit_of(policy: PoolPolicy, profile: Profile) -> int:
    """Requests in flight an instance starts with: the policy's, else the measured water level."""
    return policy.limit or max(1, min(profile.water_level, profile.max_num_seqs))


def _servers(policy: PoolPolicy, profile: Profile, instances: Iterable[Instance]) -> tuple[ServerLayout, ...]:
    mine = [one for one in instances if one.pool == policy.pool and one.phase is not Phase.GONE]
    latest: Mapping[str, Instance] = {
        server_name(one.instance_id): one for one in sorted(mine, key=lambda one: one.started_at)
    }
    return tuple(_server(name, latest[name], limit_of(policy, profile)) for name in sorted(latest))


def _server(name: str, instance: Instance, limit: int) -> ServerLayout:
    return ServerLayout(name, instance.address, limit, drained=instance.phase in _TAKES_NOTHING)


def _as_seen(server: ServerLayout, seen: ServerView | None) -> ServerLayout:
    if seen is None:
        return server
    closed = seen.state is ServerState.CLOSED
    return replace(server, weight=seen.weight, limit=seen.limit, drained=server.drained or closed)
