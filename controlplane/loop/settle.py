"""What became of an action whose outcome is unknown: the world says it, not a second try."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.domain.fleet import COMING, TAKES_TRAFFIC, Instance, Inventory, Life, Phase
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import ActionId, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.loop.second_look import level, server

Verdict = tuple[ActionState, str]


def settled(unknown: Sequence[tuple[ActionId, Action]], observation: Observation) -> dict[ActionId, Verdict]:
    """An outcome for each action that can be told now; the others stay as they are for another cycle."""
    found = ((id_, _verdict(action, observation)) for id_, action in unknown)
    return {id_: verdict for id_, verdict in found if verdict is not None}


def _verdict(action: Action, observation: Observation) -> Verdict | None:
    if not action.gateway:
        inventory = observation.inventory
        return _of_orchestrator(action, inventory) if isinstance(inventory, Inventory) else None
    view = observation.gateways.get(action.gateway)
    return _at_gateway(action, view) if isinstance(view, GatewayView) else None


def _at_gateway(action: Action, view: GatewayView) -> Verdict:
    return _compared(action, level(server(view, action.instance), action.kind))


def _compared(action: Action, found: int | None) -> Verdict:
    if found == action.level:
        return ActionState.APPLIED, f"seen at {found} afterwards"
    return ActionState.FAILED, f"wanted {action.level}, seen at {found} afterwards"


def _of_orchestrator(action: Action, inventory: Inventory) -> Verdict | None:
    """An order for a level of life takes its time: as long as it is not reached, it stays open. A later
    order for the same instance supersedes it."""
    if action.kind is ActionKind.SET_INSTANCES:
        return _compared(action, _number(inventory, action.pool))
    instance = next((each for each in inventory.instances if each.instance_id == action.instance), None)
    if action.kind is ActionKind.ADOPT:
        return _compared(action, int(instance is not None and instance.managed))
    reached = _reached(instance, action.level)
    return (ActionState.APPLIED, f"seen at {action.level} afterwards") if reached else None


def _number(inventory: Inventory, pool: PoolName) -> int:
    """The order for a pool's size as it stands; what stands in the pool where no such order is kept."""
    standing = sum(each.pool == pool and each.phase in TAKES_TRAFFIC | COMING for each in inventory.instances)
    return dict(inventory.asked).get(pool, standing)


def _reached(instance: Instance | None, level_: int) -> bool:
    phase = Phase.GONE if instance is None else instance.phase
    if level_ == Life.AWAKE.level:
        return phase in TAKES_TRAFFIC or phase is Phase.HOT
    return phase is Phase.GONE or (level_ == Life.ASLEEP.level and phase is Phase.ASLEEP)
