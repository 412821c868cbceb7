"""What comes out of a cycle: levels to be reached, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.explanation import Explanation
from controlplane.domain.fleet import Place
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.loans import Entry
from controlplane.domain.policy import Mode, PolicyVersion


class ActionKind(StrEnum):
    """Every effect is a level: sending it twice changes nothing."""

    SET_WEIGHT = "set_weight"
    SET_LIMIT = "set_limit"
    CLOSE = "close"
    OPEN = "open"
    SET_INSTANCES = "set_instances"
    ADOPT = "adopt"  # take an instance that others made under our management
    ENSURE = "ensure"  # how far up an instance is: a `Life`, as its level
    ADD = "add"
    REMOVE = "remove"


AT_GATEWAY = frozenset(
    {
        ActionKind.SET_WEIGHT,
        ActionKind.SET_LIMIT,
        ActionKind.CLOSE,
        ActionKind.OPEN,
        ActionKind.ADD,
        ActionKind.REMOVE,
    }
)
"""What a gateway does; the others are the orchestrator's."""


@dataclass(frozen=True, slots=True)
class Action:
    """One level for one target. `gateway` is empty for capacity.

    `instance` is None for `SET_INSTANCES`. `level`: the weight in the gateway's own range, the limit
    in requests, the number of instances, or `Life.level`; 0 for CLOSE and REMOVE, 1 for OPEN, ADD and
    ADOPT. `place`: where an instance to be ensured stands, or is to be made. `seen` is the level at the
    time of the decision (None: unknown); `code` a reason code.
    """

    kind: ActionKind
    pool: PoolName
    gateway: str
    instance: InstanceId | None
    level: int
    seen: int | None
    code: str
    place: Place | None = None


class Outcome(StrEnum):
    """A decision in one word, for lists."""

    CHANGE = "change"
    NOTHING_TO_DO = "nothing_to_do"
    HELD = "held"
    FAILED = "failed"  # the pool's policy or a rule broke: nothing is done for this pool


@dataclass(frozen=True, slots=True)
class Decision:
    """A cycle's answer for one pool."""

    pool: PoolName
    mode: Mode
    outcome: Outcome
    actions: tuple[Action, ...]
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Plan:
    """A cycle's answer for the fleet; no ids and no clock readings in it (see `ids.py`).

    `loans`: what the ledger of loans lacks; written together with the plan, before anything is touched.
    """

    kind: CycleKind
    policy: PolicyVersion
    decisions: Mapping[PoolName, Decision]
    loans: tuple[Entry, ...] = ()


class ActionState(StrEnum):
    """Life of a recorded action. Unknown is settled by observation, not by blind retry."""

    PROPOSED = "proposed"
    AWAITING = "awaiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    APPLYING = "applying"
    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"
    ABANDONED = "abandoned"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    REVERTED = "reverted"
