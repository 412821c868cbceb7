"""What the loop remembers between cycles. All of it is stored, so that a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.fleet import Life, Place
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.domain.profile import Mix


@dataclass(frozen=True, slots=True)
class Want:
    """A past cycle's want of a pool, in instances, at an instant (epoch seconds)."""

    at: float
    instances: int


@dataclass(frozen=True, slots=True)
class SeenCounters:
    """An instance's standing-still evidence: since when its token counters and processor
    time have shown no movement although work arrived (epoch seconds).

    `completed_total`: the gateways' count when it was last known to be merely idle; more
    than that is work it was given. While no work arrives `since` moves on with the cycles.
    """

    since: float
    completed_total: int


@dataclass(frozen=True, slots=True)
class Served:
    """What the gateways themselves counted of an instance: requests that ended (`completed`),
    request-seconds in flight (`busy_s`) and seconds watched, all fading over the evidence
    window. `completed / busy_s` is 1 / (time in service): a speed it cannot lie about."""

    at: float
    completed_total: int
    completed: float
    busy_s: float
    watched_s: float


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool's memory.

    `wants` of the stabilisation window, oldest first. `weights`: last intended weight by
    instance, relative to 1.0; `speeds`: last believed relative speed. `breaches`: latency
    cycles in a row above target. `blind`: cycles in a row below coverage. `seen_since`:
    since when (epoch seconds) the pool has been seen without a gap, None while blind.
    `suspects`: instances whose answer may be frozen. `seen_at`: the last cycle that saw it.
    `gap_ended_at`: when the last gap ended (None: none known), which is a stretch without sight
    of more than `max_age_s`; rate windows reaching back beyond it are not used.
    `unconfirmed_since`: since when a gateway has counted requests that no engine knows of.
    `mix`: the last known length moments. `served`: the gateways' own counts. `limit`: the last
    intended limit of a full-speed instance, in requests in flight. `last_target`: the last decided
    number of instances. `stood`: how many of those have stood at once since.
    """

    wants: tuple[Want, ...] = ()
    last_grow_at: float | None = None
    last_shrink_at: float | None = None
    breaches: int = 0
    blind: int = 0
    seen_since: float | None = None
    weights: Mapping[InstanceId, float] = field(default_factory=dict)
    speeds: Mapping[InstanceId, float] = field(default_factory=dict)
    suspects: Mapping[InstanceId, SeenCounters] = field(default_factory=dict)
    last_target: int | None = None
    seen_at: float | None = None
    gap_ended_at: float | None = None
    unconfirmed_since: float | None = None
    mix: Mix | None = None
    served: Mapping[InstanceId, Served] = field(default_factory=dict)
    limit: int | None = None
    stood: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """An instance of `pool` on its way to another level of life, at `place`.

    It began at `since` (epoch seconds) for the reason `code`. `until`: on the way up, when it is given
    up; on the way down, until when open requests are waited for. `asked` orders have left, the last at
    `asked_at`. `idle_since`: since when no gateway has had a request of it, or would send one, and its
    engine has not said that it runs any.
    """

    instance: InstanceId
    pool: PoolName
    to: Life
    place: Place
    since: float
    until: float
    code: str
    asked: int = 0
    asked_at: float | None = None
    idle_since: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """All pools' memory. A pool that is absent has `PoolState()`.

    `moves` in the order of instance ids: what a restart goes on with. `shunned`: places where an
    instance did not come up, and until when (epoch seconds) none is ordered there again.
    """

    pools: Mapping[PoolName, PoolState] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    shunned: Mapping[str, float] = field(default_factory=dict)
