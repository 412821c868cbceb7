"""The life of an action: where it may begin, and which state may follow which.

```
proposed                                        observe: it stays there
awaiting ─ approved ─ applying ─ applied ─ reverted
    └ rejected            ├ unchanged, refused, failed, abandoned
                          └ unknown ─ (settled by observation) as from applying
```

Whatever is still open may be superseded by a later level for the same target; what waits
for a person, or for its turn, may expire.
"""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.domain.policy import Mode

BORN: Mapping[Mode, ActionState] = {
    Mode.OBSERVE: ActionState.PROPOSED,
    Mode.RECOMMEND: ActionState.AWAITING,
    Mode.AUTO: ActionState.APPLYING,
}
"""The state in which an action is recorded, by how far its pool may go."""

UNSETTLED = frozenset({ActionState.APPLYING, ActionState.UNKNOWN})
"""It may have taken effect: only looking can tell."""

WAITING = frozenset({ActionState.AWAITING, ActionState.APPROVED})
"""Nobody has touched anything for it yet."""

SUPERSEDES: Mapping[Mode, frozenset[ActionState]] = {
    Mode.OBSERVE: frozenset(),
    Mode.RECOMMEND: WAITING,
    Mode.AUTO: WAITING | UNSETTLED,
}
"""Which earlier actions for the same target a new one makes pointless, by its mode. A proposal none,
since it moves nothing; a recommendation those that wait as it does, since it may be rejected."""

_SETTLED = frozenset(
    {
        ActionState.APPLIED,
        ActionState.UNCHANGED,
        ActionState.REFUSED,
        ActionState.FAILED,
        ActionState.ABANDONED,
    }
)

MOVES: Mapping[ActionState, frozenset[ActionState]] = {
    ActionState.PROPOSED: frozenset({ActionState.EXPIRED, ActionState.SUPERSEDED}),
    ActionState.AWAITING: frozenset(
        {ActionState.APPROVED, ActionState.REJECTED, ActionState.EXPIRED, ActionState.SUPERSEDED}
    ),
    ActionState.APPROVED: frozenset(
        {ActionState.APPLYING, ActionState.ABANDONED, ActionState.EXPIRED, ActionState.SUPERSEDED}
    ),
    ActionState.APPLYING: _SETTLED | {ActionState.UNKNOWN, ActionState.SUPERSEDED},
    ActionState.UNKNOWN: _SETTLED | {ActionState.SUPERSEDED},
    ActionState.APPLIED: frozenset({ActionState.REVERTED}),
}
"""Which states may follow a state; a state without an entry is an end."""

_DIMENSION: Mapping[ActionKind, str] = {
    ActionKind.SET_WEIGHT: "weight",
    ActionKind.SET_LIMIT: "limit",
    ActionKind.OPEN: "admission",
    ActionKind.CLOSE: "admission",
    ActionKind.SET_INSTANCES: "instances",
    ActionKind.ADOPT: "owner",
    ActionKind.ENSURE: "life",
    ActionKind.ADD: "membership",
    ActionKind.REMOVE: "membership",
}


def target(action: Action) -> str:
    """What the action's level is a level of: two actions with one target exclude each other.

    Opening and closing share a target, since the later one decides; so do adding and removing.
    """
    return "|".join((_DIMENSION[action.kind], action.gateway, action.pool, action.instance or ""))
