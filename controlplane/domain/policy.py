"""What the fleet's owners asked for, already validated. The YAML form: `adapters.policyfiles`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.profile import Profile


class Mode(StrEnum):
    """How far a kind of action may go without a person."""

    OBSERVE = "observe"  # record only
    RECOMMEND = "recommend"  # a person approves
    AUTO = "auto"


class PoolKind(StrEnum):
    """What the pool's callers wait for."""

    ONLINE = "online"
    OFFLINE = "offline"


class Routing(StrEnum):
    """Who routes per request. `external`: another router does; no weights are pushed."""

    GATEWAY = "gateway"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class Slo:
    """What callers were promised. Times in seconds; refusals and failures count as misses."""

    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float | None = None
    target_share: float = 0.95
    window_s: float = 300.0


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """How many instances, and how fast that may change. Times in seconds.

    `target_utilisation`: share of B* that the pool should run at. Growth starts above
    `grow_above` of what the ready instances carry, shrinking only where the rest would
    stay under `shrink_below` (hysteresis). `grow_step` and `shrink_step`: largest change
    in one decision, as a share of the pool (at least one instance). `stabilise_s`: the
    largest want of this span counts for shrinking; None: three of the profile's cold starts. `drain_s`:
    longest wait for the open requests of an instance that leaves.
    """

    minimum: int
    maximum: int
    target_utilisation: float = 0.80
    grow_above: float = 0.85
    shrink_below: float = 0.70
    grow_step: float = 1.0
    shrink_step: float = 0.25
    grow_cooldown_s: float = 0.0
    shrink_cooldown_s: float = 300.0
    stabilise_s: float | None = None
    drain_s: float = 300.0


@dataclass(frozen=True, slots=True)
class WeightPolicy:
    """How routing weights follow measured speed.

    Within `deadband` of the pool's median speed weights are exactly equal; a weight moves
    by at most the share `step` a cycle, never below `floor` nor above `ceiling` (multiples
    of the pool's median). Speed needs `min_running` mean running requests to be believed.
    """

    deadband: float = 0.10
    step: float = 0.25
    floor: float = 0.10
    ceiling: float = 2.0
    min_running: float = 0.5


@dataclass(frozen=True, slots=True)
class EvidencePolicy:
    """What counts as seen. `window_s`: span of rates and quantiles; `max_age_s`: oldest raw
    sample acted upon; `coverage`: least share of instances that must be seen, below it the
    pool is held; `breach_cycles`: cycles that latency must stand above target to be believed;
    `page_after_cycles`: blind cycles in a row after which somebody is paged, once."""

    window_s: float = 300.0
    max_age_s: float = 60.0
    coverage: float = 0.90
    breach_cycles: int = 3
    page_after_cycles: int = 10
    min_samples: int = 20


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """One pool, one file. `limit` caps requests in flight an instance (None: from the profile)."""

    pool: PoolName
    model: str
    tp: int
    profile: str
    slo: Slo
    capacity: CapacityPolicy
    weights: WeightPolicy = WeightPolicy()
    evidence: EvidencePolicy = EvidencePolicy()
    kind: PoolKind = PoolKind.ONLINE
    routing: Routing = Routing.GATEWAY
    priority: int = 50
    limit: int | None = None
    weights_mode: Mode = Mode.AUTO
    capacity_mode: Mode = Mode.OBSERVE

    def mode(self, kind: CycleKind) -> Mode:
        """How far actions of this kind of cycle may go."""
        return self.weights_mode if kind is CycleKind.WEIGHTS else self.capacity_mode


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """What the buffer keeps back. `reserve`: GPUs that no pool may take, except in breach of its SLO
    and with a priority of `reserve_priority` or above."""

    reserve: int = 0
    reserve_priority: int = 100


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """Where policies came from: git commit (empty where unknown) and hash of their content."""

    commit: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Policies:
    """All pools' policies with the profiles they name, in force as one version."""

    version: PolicyVersion
    pools: Mapping[PoolName, PoolPolicy]
    profiles: Mapping[str, Profile]
    buffer: BufferPolicy = BufferPolicy()
