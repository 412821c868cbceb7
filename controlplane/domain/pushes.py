"""From intended weights and limits to the levels that each gateway still lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from controlplane.domain import routing
from controlplane.domain.fleet import TAKES_TRAFFIC, Instance, Phase
from controlplane.domain.gateway import ServerState, ServerView
from controlplane.domain.ids import InstanceId
from controlplane.domain.plan import Action, ActionKind
from controlplane.domain.readings import Floats
from controlplane.domain.view import Backend, PoolView


class Code(StrEnum):
    """Why a level is pushed."""

    FOLLOWS_SPEED = "push_follows_speed"
    DRIFT = "push_drift"  # the gateway shows another level than the one intended before
    LEAVES = "push_leaves"
    RETURNS = "push_returns"
    LIMIT = "push_limit"
    JOINS = "push_joins"
    GONE = "push_gone"


WORDS: Mapping[str, str] = {
    Code.FOLLOWS_SPEED: "weights follow measured speed",
    Code.DRIFT: "the gateway shows other levels than intended",
    Code.LEAVES: "it does not take traffic now",
    Code.RETURNS: "it takes traffic again",
    Code.LIMIT: "its limit has changed",
    Code.JOINS: "the gateway does not have it yet",
    Code.GONE: "it is gone, and nothing is in flight there",
}


@dataclass(frozen=True, slots=True)
class Intent:
    """What the m members of a pool should have, in id order. `changed`: whose weight is new; `ramp`: the
    share of its limit that each may have by now."""

    members: tuple[InstanceId, ...]
    weights: Floats
    changed: frozenset[InstanceId]
    pool_limit: int
    ramp: Floats


@dataclass(frozen=True, slots=True)
class _Door:
    """One gateway's backend, and the levels its servers should have."""

    view: PoolView
    backend: Backend
    changed: frozenset[InstanceId]
    weight: Mapping[InstanceId, int]
    limit: Mapping[InstanceId, int]

    def actions(self, server: ServerView, instance: Instance) -> Iterator[Action]:
        """What this server lacks."""
        if instance.phase in TAKES_TRAFFIC:
            yield from self._levels(server)
        elif _leaves(self.view, server, instance):
            yield self._action(server, ActionKind.CLOSE, 0, Code.LEAVES)
        elif _left(self.view, server, instance):
            yield self._action(server, ActionKind.REMOVE, 0, Code.GONE)

    def _levels(self, server: ServerView) -> Iterator[Action]:
        """After a return the same limit is sent again: opening alone does not wake a queue."""
        if server.state is ServerState.ABSENT:
            yield self._action(server, ActionKind.ADD, 1, Code.JOINS)
        returns = server.state in {ServerState.CLOSED, ServerState.ABSENT}
        if returns:
            yield self._action(server, ActionKind.OPEN, 1, Code.RETURNS)
        limit, weight = self.limit[server.instance_id], self.weight[server.instance_id]
        if self.backend.capabilities.per_instance_limit and (returns or server.limit != limit):
            yield self._action(server, ActionKind.SET_LIMIT, limit, Code.RETURNS if returns else Code.LIMIT)
        if server.state is ServerState.ABSENT or server.weight != weight:
            code = Code.FOLLOWS_SPEED if server.instance_id in self.changed else Code.DRIFT
            yield self._action(server, ActionKind.SET_WEIGHT, weight, code)

    def _action(self, server: ServerView, kind: ActionKind, level: int, code: Code) -> Action:
        pool, gateway = self.view.policy.pool, self.backend.gateway
        return Action(kind, pool, gateway, server.instance_id, level, _seen(server, kind), code)


def pushes(view: PoolView, intent: Intent) -> tuple[Action, ...]:
    """All levels that differ from what the gateways show, gateway by gateway, in id order."""
    known = {each.instance_id: each for each in view.instances}
    doors = (_door(view, backend, intent) for backend in view.backends)
    return tuple(
        action
        for door in doors
        for server in sorted(door.backend.view.servers, key=lambda each: each.instance_id)
        if server.instance_id in known
        for action in door.actions(server, known[server.instance_id])
    )


def _door(view: PoolView, backend: Backend, intent: Intent) -> _Door:
    weight_max = backend.capabilities.weight_max
    unit = routing.unit_of(weight_max, view.policy.weights.ceiling)
    weights = routing.quantise(intent.weights, unit, weight_max).tolist()
    parts = len(view.backends) + view.gateways_missing
    limits = routing.shares(routing.limits(intent.weights, intent.pool_limit, intent.ramp), parts).tolist()
    return _Door(
        view,
        backend,
        intent.changed,
        dict(zip(intent.members, weights, strict=True)),
        dict(zip(intent.members, limits, strict=True)),
    )


def _seen(server: ServerView, kind: ActionKind) -> int | None:
    """The level as the gateway shows it; None where it does not know the server."""
    if kind in {ActionKind.ADD, ActionKind.REMOVE}:
        return int(server.state is not ServerState.ABSENT)
    if server.state is ServerState.ABSENT:
        return None
    levels = {ActionKind.SET_LIMIT: server.limit, ActionKind.SET_WEIGHT: server.weight}
    return levels.get(kind, 0 if server.state is ServerState.CLOSED else 1)


def _leaves(view: PoolView, server: ServerView, instance: Instance) -> bool:
    """Closed are those that are known to take no traffic. An unreachable one is left to the
    gateway's own check, which knows sooner, and nothing is closed on an old inventory. Who is gone
    is closed though it is down: its address may soon be another's."""
    known = view.inventory_known and instance.phase is not Phase.UNREACHABLE
    down = server.state is ServerState.DOWN and instance.phase is Phase.GONE
    return known and (server.state is ServerState.OPEN or down)


def _left(view: PoolView, server: ServerView, instance: Instance) -> bool:
    """Removed are those that are known to be gone, once closed and without a request. The gateway
    looks once more: it refuses while anything is attached."""
    idle = server.state is ServerState.CLOSED and server.in_flight == 0
    return view.inventory_known and instance.phase is Phase.GONE and idle


def pool_limit(view: PoolView, concurrency: int) -> int:
    """Requests in flight of a full-speed instance: the policy's number, else the smaller of water
    level and B*. While the mix is unknown the water level alone; a change of a tenth is noise."""
    if view.policy.limit is not None:
        return view.policy.limit
    last = view.state.limit
    if view.blind and last is not None:
        return last
    unknown_mix = view.mix.source == "neutral"
    limit = view.profile.water_level if unknown_mix else min(view.profile.water_level, concurrency)
    if last is not None and abs(limit - last) <= max(1, round(0.1 * last)):
        return last
    return max(1, limit)


def weights_changed(members: tuple[InstanceId, ...], last: Floats, weights: Floats) -> frozenset[InstanceId]:
    """Whose intended weight is not the one intended before."""
    return frozenset(members[row] for row in np.flatnonzero(weights != last).tolist())
