"""What a gateway says of itself, and what may be asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.ids import InstanceId, PoolName


class ServerState(StrEnum):
    """How a gateway treats one instance."""

    OPEN = "open"
    CLOSED = "closed"  # drained: the old requests finish, no new ones come
    DOWN = "down"  # the gateway's own check says so
    ABSENT = "absent"  # unknown to this gateway: it came later, or the gateway restarted


class WeightMeaning(StrEnum):
    """What a weight of 2:1 brings about, which differs between gateways."""

    CONCURRENCY_WHEN_BUSY = "concurrency_when_busy"  # HAProxy leastconn
    RATE = "rate"  # round robin
    EXACT_WHEN_IDLE = "exact_when_idle"  # Envoy LEAST_REQUEST with unequal weights


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of gateway can do. `weight_max` is its largest weight."""

    per_instance_limit: bool
    central_queue: bool
    priority: bool
    zero_weight: bool
    ramp: bool
    weight_meaning: WeightMeaning
    weight_max: int


@dataclass(frozen=True, slots=True)
class ServerView:
    """One instance as one gateway has it now. `limit` is requests in flight, at least 1."""

    instance_id: InstanceId
    state: ServerState
    weight: int
    limit: int
    in_flight: int
    completed_total: int


@dataclass(frozen=True, slots=True)
class BackendView:
    """One pool as one gateway has it now; totals count from the gateway's start."""

    pool: PoolName
    queue: int
    in_flight: int
    arrivals_total: int
    refused_total: int
    servers: tuple[ServerView, ...]


@dataclass(frozen=True, slots=True)
class GatewayView:
    """A gateway's state, read back. `epoch` changes when it restarts (totals start again)."""

    gateway: str
    read_at: float
    epoch: str
    capabilities: Capabilities
    backends: tuple[BackendView, ...]
