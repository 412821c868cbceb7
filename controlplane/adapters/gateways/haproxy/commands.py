"""Actions as runtime commands, and what the world says of them afterwards. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.adapters.gateways.haproxy.layout import WEIGHT_MAX
from controlplane.adapters.gateways.haproxy.parse import UNLIMITED, ServerRow
from controlplane.domain.ids import ActionId
from controlplane.domain.plan import Action, ActionKind, ActionState

Verdict = tuple[ActionState, str]

_ORDER = (ActionKind.CLOSE, ActionKind.SET_LIMIT, ActionKind.SET_WEIGHT, ActionKind.OPEN)
# Leaving is first; a limit stands before the server it binds is opened. Members come and go before
# all of it, by themselves: `membership.py`.

_BOUNDS: Mapping[ActionKind, tuple[int, int]] = {
    ActionKind.SET_WEIGHT: (0, WEIGHT_MAX),
    ActionKind.SET_LIMIT: (1, UNLIMITED - 1),  # 0 would be unlimited: closing is its own verb
    ActionKind.CLOSE: (0, 0),
    ActionKind.OPEN: (1, 1),
    ActionKind.ADD: (1, 1),
    ActionKind.REMOVE: (0, 0),
}
# Levels that mean what they say.


@dataclass(frozen=True, slots=True)
class Step:
    """One action on one server, still to be sent."""

    id: ActionId
    action: Action
    server: ServerRow


@dataclass(frozen=True, slots=True)
class Command:
    """One runtime command and the action it serves."""

    text: str
    id: ActionId


def level(server: ServerRow, kind: ActionKind) -> int:
    """The level at which a server stands now, in an action's own terms."""
    if kind is ActionKind.SET_WEIGHT:
        return server.weight
    if kind is ActionKind.SET_LIMIT:
        return server.limit
    return 0 if server.closed else 1


def objection(action: Action, server: ServerRow) -> str:
    """Why an action must not be sent, or an empty text. The world is looked at once more before acting."""
    if said := misfit(action):
        return said
    now = level(server, action.kind)
    if action.seen is not None and now not in (action.seen, action.level):
        return f"conflict: {action.kind} was {action.seen} at the decision and is {now}: somebody else writes"
    return ""


def misfit(action: Action) -> str:
    """Why an action is none that this gateway can carry out, or an empty text."""
    if action.kind not in _BOUNDS:
        return "a gateway starts no instances"
    low, high = _BOUNDS[action.kind]
    if not low <= action.level <= high:
        return f"{action.kind} {action.level} is outside {low} to {high}"
    return ""


def starved(steps: Sequence[Step], servers: Sequence[ServerRow]) -> frozenset[ActionId]:
    """The zero weights that must not be sent, because a pool would keep no weight at all: 503 for everybody.

    `servers`: all servers of the gateway; those that take traffic count.
    """
    zeros = [step for step in steps if step.action.kind is ActionKind.SET_WEIGHT and step.action.level == 0]
    return frozenset(step.id for step in zeros if _left(step.server.pool, steps, servers) == 0)


def _left(pool: str, steps: Sequence[Step], servers: Sequence[ServerRow]) -> int:
    """Sum of the weights that the open servers of `pool` will have after `steps`."""
    mine = [server for server in servers if server.pool == pool]
    steps = [step for step in steps if step.server.pool == pool]
    weights = {server.name: server.weight for server in mine}
    shut = {server.name for server in mine if server.closed}
    shut -= {s.server.name for s in steps if s.action.kind is ActionKind.OPEN}
    shut |= {s.server.name for s in steps if s.action.kind is ActionKind.CLOSE}
    weights |= {s.server.name: s.action.level for s in steps if s.action.kind is ActionKind.SET_WEIGHT}
    return sum(weight for name, weight in weights.items() if name not in shut)


def commands(steps: Sequence[Step]) -> tuple[Command, ...]:
    """The commands of all steps, in the order of `_ORDER`, then the wakes.

    A queue is not woken by `ready`, nor by a weight that leaves zero: requests would wait
    beside an idle server until they time out. Setting the limit again wakes them at once.
    """
    ordered = sorted(steps, key=lambda step: _ORDER.index(step.action.kind))
    limits = {
        (s.server.pool, s.server.name): s.action.level for s in steps if s.action.kind is ActionKind.SET_LIMIT
    }
    wakes = [_wake(step, limits) for step in ordered if _leaves_the_queue_asleep(step)]
    return (*(Command(_text(step), step.id) for step in ordered), *(wake for wake in wakes if wake))


def _leaves_the_queue_asleep(step: Step) -> bool:
    from_zero = step.action.kind is ActionKind.SET_WEIGHT and step.server.weight == 0
    return step.action.kind is ActionKind.OPEN or (from_zero and step.action.level > 0)


def _wake(step: Step, limits: Mapping[tuple[str, str], int]) -> Command | None:
    server = step.server
    limit = limits.get((server.pool, server.name), server.limit)
    if limit >= UNLIMITED:  # nothing ever waits for a server without a limit, and 0 must not be sent
        return None
    return Command(f"set maxconn server {server.pool}/{server.name} {limit}", step.id)


def _text(step: Step) -> str:
    target = f"{step.server.pool}/{step.server.name}"
    match step.action.kind:
        case ActionKind.SET_WEIGHT:
            # Absolute, never a percentage: that is relative to the configured weight, which may be 0.
            return f"set server {target} weight {step.action.level}"
        case ActionKind.SET_LIMIT:
            return f"set maxconn server {target} {step.action.level}"
        case ActionKind.CLOSE:
            return f"set server {target} state drain"
        case _:
            return f"set server {target} state ready"


def verdict(step: Step, replies: Sequence[str], after: ServerRow | None) -> Verdict:
    """What became of a step: HAProxy's refusal in its own words, else what was read back."""
    if refusal := next((reply for reply in replies if reply), ""):
        return ActionState.REFUSED, refusal
    if after is None:
        return ActionState.FAILED, "the server vanished while it was set"
    now = level(after, step.action.kind)
    if now != step.action.level:
        return ActionState.FAILED, f"{step.action.kind} {step.action.level} was accepted, {now} was read back"
    return ActionState.APPLIED, f"{step.action.kind} {step.action.level}, read back"
