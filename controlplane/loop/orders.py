"""Orders to the orchestrator: after the gateways, and never for an instance that still gets requests."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.domain.fleet import Life
from controlplane.domain.ids import ActionId, InstanceId
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.loop.second_look import Outcomes, Runnable
from controlplane.ports import Orchestrator, Order, OutcomeUnknown, PortError, Unavailable

CLOSED = frozenset({ActionState.APPLIED, ActionState.UNCHANGED})


def send(orchestrator: Orchestrator | None, orders: Runnable, open_: Mapping[InstanceId, str]) -> Outcomes:
    """Send levels one by one. One that was accepted has no outcome yet: the inventory will show it.

    `open_`: instances that a gateway was to close and did not, with its reason. They stay as they are
    for another cycle. After the first order without an answer the others are not tried: each would
    wait as long, and the cycle with it.
    """
    outcomes: Outcomes = {}
    silent = ""
    for id_, action in orders:
        outcome = _objection(orchestrator, action, open_, silent) or _sent(orchestrator, id_, action)
        if outcome is not None:
            outcomes[id_] = outcome
            silent = silent or (outcome[1] if outcome[0] in {ActionState.UNKNOWN, ActionState.FAILED} else "")
    return outcomes


def not_closed(sent: Runnable, outcomes: Outcomes) -> dict[InstanceId, str]:
    """Instances that a gateway was to close and did not, with its reason."""
    return {
        action.instance: outcomes[id_][1]
        for id_, action in sent
        if action.kind is ActionKind.CLOSE and action.instance and outcomes[id_][0] not in CLOSED
    }


def _objection(
    orchestrator: Orchestrator | None, action: Action, open_: Mapping[InstanceId, str], silent: str
) -> tuple[ActionState, str] | None:
    if orchestrator is None:
        return ActionState.REFUSED, "no orchestrator is configured"
    still = open_.get(action.instance) if action.instance and action.level < Life.AWAKE.level else None
    if still is not None:
        return ActionState.ABANDONED, f"a gateway may still send it requests: {still}"
    if silent:
        return ActionState.ABANDONED, f"an order before it had no answer: {silent}"
    return None


def _sent(orchestrator: Orchestrator | None, id_: ActionId, action: Action) -> tuple[ActionState, str] | None:
    assert orchestrator is not None  # noqa: S101 - `_objection` answered for that
    try:
        return _carried_out(orchestrator, id_, action)
    except OutcomeUnknown as error:
        return ActionState.UNKNOWN, str(error)
    except Unavailable as error:
        return ActionState.FAILED, f"nothing was sent: {error}"
    except PortError as error:
        return ActionState.REFUSED, str(error)


def _carried_out(orchestrator: Orchestrator, id_: ActionId, action: Action) -> tuple[ActionState, str] | None:
    if action.kind is ActionKind.SET_INSTANCES:
        orchestrator.set_instances(id_, action.pool, action.level)
        return ActionState.APPLIED, f"{action.level} asked for"
    if action.instance is None or action.kind not in {ActionKind.ADOPT, ActionKind.ENSURE}:
        return ActionState.REFUSED, f"an orchestrator does not {action.kind}"
    if action.kind is ActionKind.ADOPT:
        orchestrator.adopt(id_, action.instance)
        return ActionState.APPLIED, "adopted"
    if action.place is None:
        return ActionState.REFUSED, "the order names no place"
    orchestrator.ensure(Order(id_, action.instance, action.pool, action.place, tuple(Life)[action.level]))
    return None
