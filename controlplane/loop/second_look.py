"""Look again just before acting: what a plan relied on may have changed while it was made.

An action that no longer fits is abandoned, which is an ordinary outcome: the next cycle plans
from what is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.domain.fleet import Inventory, Life
from controlplane.domain.gateway import GatewayView, ServerState, ServerView
from controlplane.domain.ids import ActionId, InstanceId
from controlplane.domain.moves.floor import floor_of
from controlplane.domain.moves.progress import life
from controlplane.domain.observation import Effect, Hold, Observation
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.domain.readings import Cause, Missing

Outcomes = dict[ActionId, tuple[ActionState, str]]
Runnable = Sequence[tuple[ActionId, Action]]


NOT_ASKED = Missing(Cause.NOT_ASKED)

_SAID = {Effect.HOLD: "hold", Effect.PIN_INSTANCES: "pin", Effect.PIN_WEIGHT: "pin"}


@dataclass(frozen=True, slots=True)
class Now:
    """The world on the second look. `stopping`: we were told to stop meanwhile. `inventory` is Missing
    also where nothing needed it."""

    leads: bool
    stopping: bool
    holds: Sequence[Hold]
    gateways: Mapping[str, GatewayView | Missing]
    inventory: Inventory | Missing = NOT_ASKED


def sift(actions: Runnable, seen: Observation, now: Now) -> tuple[Runnable, Outcomes]:
    """The actions that still fit, and an ABANDONED with its reason for each of the others."""
    reasons = {id_: objection(action, seen, now) for id_, action in actions}
    fitting = [(id_, action) for id_, action in actions if reasons[id_] is None]
    abandoned = {id_: (ActionState.ABANDONED, reason) for id_, reason in reasons.items() if reason}
    return fitting, abandoned


def objection(action: Action, seen: Observation, now: Now) -> str | None:
    """Why an action may not be carried out any more; None where it may."""
    if now.stopping:
        return "the controller was told to stop"
    if not now.leads:
        return "the lease is not ours any more"
    for hold in now.holds:
        if hold.pool in {None, action.pool} and hold not in seen.holds:
            return f"{hold.author} placed a {_SAID[hold.effect]} meanwhile: {hold.reason}"
    return _gateway_changed(action, seen, now) if action.gateway else _fleet_changed(action, seen, now)


def _fleet_changed(action: Action, seen: Observation, now: Now) -> str | None:
    """Capacity is ordered on what stands there now: a level computed from an old size could be an order
    to shrink, and GPUs that look free may be somebody's since."""
    if not isinstance(seen.inventory, Inventory):
        return "it was decided on an old inventory"
    if not isinstance(now.inventory, Inventory):
        return f"the orchestrator did not answer on the second look: {now.inventory.detail}"
    found = next((each for each in now.inventory.instances if each.instance_id == action.instance), None)
    if action.kind is ActionKind.ENSURE and life(found).level != action.seen:
        return f"{action.instance} was at level {action.seen} of life and is at {life(found).level} now"
    if action.kind is not ActionKind.ENSURE or action.place is None:
        return None
    if action.level < Life.AWAKE.level:
        return _busy_again(action.instance, seen, now)
    taken = floor_of(now.inventory).blockers(action.place) - {action.instance}
    return f"its GPUs are held by {', '.join(sorted(taken))} now" if taken else None


def _busy_again(instance: InstanceId | None, seen: Observation, now: Now) -> str | None:
    """Who is ended because every gateway had closed it, with nothing open there, must still be so. Who was
    busy at the decision is ended all the same: its wait is over, or it had none."""
    if any(_busy(name, view, instance) for name, view in sorted(seen.gateways.items())):
        return None
    found = (_busy(name, view, instance) for name, view in sorted(now.gateways.items()))
    return next((each for each in found if each), None)


def _busy(name: str, view: GatewayView | Missing, instance: InstanceId | None) -> str:
    """How an instance is in use at a gateway; an empty text where it is not."""
    if isinstance(view, Missing):
        return f"gateway {name} did not answer on the second look"
    row = server(view, instance)
    if row is None or not (row.state is ServerState.OPEN or row.in_flight):
        return ""
    return f"it is {row.state} at gateway {name} once more, with {row.in_flight} requests in flight"


def _gateway_changed(action: Action, seen: Observation, now: Now) -> str | None:
    before, after = seen.gateways.get(action.gateway), now.gateways.get(action.gateway)
    if not isinstance(before, GatewayView) or not isinstance(after, GatewayView):
        return f"gateway {action.gateway} did not answer on the second look"
    if before.epoch != after.epoch:
        return f"gateway {action.gateway} was restarted meanwhile"
    found = level(server(after, action.instance), action.kind)
    if action.seen is not None and found != action.seen:
        return f"{action.kind} stood at {action.seen} and stands at {found} now"
    return None


def server(view: GatewayView, instance: InstanceId | None) -> ServerView | None:
    """An instance as a gateway has it; None where it does not know it."""
    rows = (row for backend in view.backends for row in backend.servers)
    return next((row for row in rows if row.instance_id == instance), None)


def level(row: ServerView | None, kind: ActionKind) -> int | None:
    """The level that an action of this kind would set, as it stands; None where unknown. Who is not
    there is known not to be there: membership is the one level that it has."""
    if kind in {ActionKind.ADD, ActionKind.REMOVE}:
        return int(row is not None and row.state is not ServerState.ABSENT)
    if row is None or row.state is ServerState.ABSENT:
        return None
    match kind:
        case ActionKind.SET_WEIGHT:
            return row.weight
        case ActionKind.SET_LIMIT:
            return row.limit
        case ActionKind.CLOSE | ActionKind.OPEN:
            return int(row.state is not ServerState.CLOSED)
        case _:
            return None
