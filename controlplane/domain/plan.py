"""What comes out of a cycle: levels to be reached, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.explanation import Explanation
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.policy import Mode, PolicyVersion


class ActionKind(StrEnum):
    """Every effect is a level: sending it twice changes nothing."""

    SET_WEIGHT = "set_weight"
    SET_LIMIT = "set_limit"
    CLOSE = "close"
    OPEN = "open"
    SET_INSTANCES = "set_instances"
    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Action:
    """One level for one target. `gateway` is empty for capacity.

    `instance` is None for `SET_INSTANCES`. `level`: the weight in the gateway's own range,
    the limit in requests, or the number of instances; 0 for CLOSE and REMOVE, 1 for OPEN and ADD.
    `seen` is the level at the time of the decision (None: unknown); `code` a reason code.
    """

    kind: ActionKind
    pool: PoolName
    gateway: str
    instance: InstanceId | None
    level: int
    seen: int | None
    code: str


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
    """A cycle's answer for the fleet; no ids and no clock readings in it (see `ids.py`)."""

    kind: CycleKind
    policy: PolicyVersion
    decisions: Mapping[PoolName, Decision]


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
