"""Small steps for stories: decide one pool, carry the state on, do what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controlplane.domain.decide import decide
from controlplane.domain.explanation import Step
from controlplane.domain.gateway import BackendView, GatewayView, ServerState, ServerView
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action, ActionKind, Decision
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Missing
from controlplane.domain.state import PoolState, State
from tests.builders import NO_FORECAST, policies
from tests.domain.strategies import SETTLED

POOL = PoolName("chat-8b")


def decided(
    observation: Observation, state: PoolState = SETTLED, rules: Policies | None = None
) -> tuple[Decision, PoolState]:
    """The decision for `chat-8b` and its next memory."""
    plan, after = decide(observation, rules or policies(), State({POOL: state}), NO_FORECAST)
    return plan.decisions[POOL], after.pools[POOL]


def after(observation: Observation, state: PoolState = SETTLED, rules: Policies | None = None) -> int:
    """The number of instances decided on."""
    wanted = decided(observation, state, rules)[0].explanation.after
    assert wanted is not None
    return int(wanted)


def step_of(decision: Decision, rule: str) -> Step:
    """What one rule said."""
    return next(step for step in decision.explanation.steps if step.rule == rule)


def levels(decision: Decision, kind: ActionKind) -> dict[str, int]:
    """Levels of one kind by slot."""
    return {_slot(action): action.level for action in decision.actions if action.kind is kind}


def applied(observation: Observation, decision: Decision) -> Observation:
    """The same observation with the gateways as the decision wants them."""
    wanted: dict[str, list[Action]] = {}
    for action in decision.actions:
        wanted.setdefault(action.gateway, []).append(action)
    gateways: Mapping[str, GatewayView | Missing] = {
        name: view if isinstance(view, Missing) else _pushed(view, wanted.get(name, []))
        for name, view in observation.gateways.items()
    }
    return replace(observation, gateways=gateways)


def _pushed(view: GatewayView, actions: list[Action]) -> GatewayView:
    return replace(view, backends=tuple(_backend(backend, actions) for backend in view.backends))


def _backend(backend: BackendView, actions: list[Action]) -> BackendView:
    servers = {server.instance_id: server for server in backend.servers}
    for action in actions:
        if action.instance in servers and action.kind is ActionKind.REMOVE:
            del servers[action.instance]
        elif action.instance in servers:
            servers[action.instance] = _server(servers[action.instance], action)
    return replace(backend, servers=tuple(servers.values()))


def _server(server: ServerView, action: Action) -> ServerView:
    match action.kind:
        case ActionKind.SET_WEIGHT:
            return replace(server, weight=action.level)
        case ActionKind.SET_LIMIT:
            return replace(server, limit=action.level)
        case ActionKind.ADD:
            return replace(server, state=ServerState.CLOSED, weight=1, limit=1)
        case ActionKind.OPEN:
            return replace(server, state=ServerState.OPEN)
        case _:
            return replace(server, state=ServerState.CLOSED)


def _slot(action: Action) -> str:
    return (action.instance or InstanceId("")).rpartition("/")[2].partition("@")[0]
