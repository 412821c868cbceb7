"""One cycle's input: everything `decide` may know of the world, at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.domain.fleet import Instance, Inventory
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.loans import Loan
from controlplane.domain.readings import Column, Missing, PoolSignal, Reading, Signal


class Effect(StrEnum):
    """What a person's word does."""

    HOLD = "hold"  # nothing may change
    PIN_INSTANCES = "pin_instances"  # a pool's number is what they say
    PIN_WEIGHT = "pin_weight"  # an instance's weight is what they say


@dataclass(frozen=True, slots=True)
class Hold:
    """A person's word about a pool (None: the fleet), from `since` until `until` (epoch seconds, or None).

    Of a pin `level` is the number of instances, or the weight of `instance` in percent of the usual one.
    """

    pool: PoolName | None
    author: str
    reason: str
    since: float
    until: float | None = None
    effect: Effect = Effect.HOLD
    instance: InstanceId | None = None
    level: int | None = None


class Reach(StrEnum):
    """What the orchestrator can be asked for."""

    NOTHING = "nothing"  # it only says what exists, or nobody can be asked
    REPLICAS = "replicas"  # a pool's number of instances, which somebody else brings about
    INSTANCES = "instances"  # each instance's level of life


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How the metrics source answered this cycle.

    `failures`: (query name, what went wrong) of queries that gave nothing.
    `warnings`: what the source itself says is incomplete; `notes`: harmless remarks.
    `rejected_samples`: readings dropped as impossible. `skew_s`: its clock minus ours.
    """

    queries: int
    failures: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rejected_samples: int = 0
    skew_s: float | None = None
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen, immutable.

    `now` is the instant of the cycle (epoch seconds), handed in; ages are `now - sampled_at`.
    `instances` (n of them, sorted by pool and id) are those of the inventory, and only
    those: a series without an inventory row is no instance, an inventory row without a
    series is an instance that is unseen. Every `Column` in `signals` has length n.
    `inventory` is Missing where the orchestrator did not answer; `instances` are then the
    last known ones and nothing may shrink. A gateway that did not answer is Missing.
    `loans`: those that stand open in the record. `reach`: how far capacity can be moved.
    """

    cluster: str
    kind: CycleKind
    now: float
    instances: tuple[Instance, ...]
    signals: Mapping[Signal, Column]
    pools: Mapping[PoolName, Mapping[PoolSignal, Reading]]
    gateways: Mapping[str, GatewayView | Missing]
    inventory: Inventory | Missing
    source: SourceHealth
    holds: tuple[Hold, ...] = field(default=())
    loans: tuple[Loan, ...] = ()
    reach: Reach = Reach.NOTHING
