"""One pool as one cycle sees it: trusted readings in the order of instance ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from controlplane.domain import trust
from controlplane.domain.asked import Asked, asked
from controlplane.domain.fleet import COMING, TAKES_TRAFFIC, Instance, Inventory, Life, Phase
from controlplane.domain.gateway import BackendView, Capabilities, GatewayView
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.observation import Effect, Hold, Observation, Reach
from controlplane.domain.policy import Policies, PoolPolicy
from controlplane.domain.profile import Mix, Profile
from controlplane.domain.readings import Bools, Cause, Column, Known, Missing, PoolSignal, Reading, Signal
from controlplane.domain.state import Move, PoolState, SeenCounters, State

NEUTRAL_MIX = Mix(prompt_mean=500.0, output_mean=250.0, output_square_mean=125_000.0)
"""Stands in until a pool's first requests have ended: good enough to grow by, never to shrink by."""


class BrokenPolicy(ValueError):
    """The pool's policy cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One gateway's backend of this pool, with what that gateway can do."""

    gateway: str
    capabilities: Capabilities
    view: BackendView


@dataclass(frozen=True, slots=True)
class MixInUse:
    """Length moments and whence: `measured`, `remembered` (from an earlier cycle) or `neutral`."""

    mix: Mix
    source: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool: n instances in id order, and columns of that length.

    `gauge_rows`, `rate_rows`: who should report gauges and windowed figures; `traffic_rows`: who
    takes traffic. `gateways_missing` counts gateways that did not answer. `suspects` by row.
    `instances` that are on their way out stand as draining; `rising` counts those ordered to come up
    that do not stand as coming yet, and `vanished` those that stood and were not asked to leave.
    `four_scrapes_s`: the shortest window of a rate. `asked`: the number of instances that stands as an
    order, None where none does; `by_number`: whether orders are such numbers. `pin`: the newest pin of
    its size; `weight_pins`: those of weights.
    """

    kind: CycleKind
    now: float
    policy: PoolPolicy
    profile: Profile
    state: PoolState
    instances: tuple[Instance, ...]
    signals: Mapping[Signal, Column]
    readings: Mapping[PoolSignal, Reading]
    backends: tuple[Backend, ...]
    gateways_missing: int
    holds: tuple[Hold, ...]
    inventory_known: bool
    mix: MixInUse
    gauge_rows: Bools
    rate_rows: Bools
    traffic_rows: Bools
    work: trust.Work
    suspects: Mapping[int, SeenCounters] = field(default_factory=dict)
    rising: int = 0
    vanished: int = 0
    four_scrapes_s: float = trust.four_scrapes(None)
    by_number: bool = False
    asked: int | None = None
    pin: Hold | None = None
    weight_pins: Mapping[InstanceId, Hold] = field(default_factory=dict)

    def column(self, signal: Signal) -> Column:
        """A signal's trusted column; all missing where it was not asked for."""
        found = self.signals.get(signal)
        return found if found is not None else Column.missing(len(self.instances), Cause.NOT_ASKED)

    def reading(self, signal: PoolSignal) -> Reading:
        """A pool signal's trusted reading."""
        return self.readings.get(signal, Missing(Cause.NOT_ASKED))

    @property
    def coverage(self) -> trust.Coverage:
        """How much of the pool is seen: who should report its running count, and does."""
        found = trust.coverage(self.column(Signal.RUNNING), self.gauge_rows)
        return replace(found, expected=found.expected + self.vanished)

    @property
    def blind(self) -> bool:
        """Whether too little is seen for anything but growth."""
        return self.unsized or self.coverage.share < self.policy.evidence.coverage

    @property
    def unsized(self) -> bool:
        """Whether nobody has ever said which instances there are. That is not a pool of none."""
        return not self.inventory_known and not self.instances

    @property
    def ready(self) -> int:
        """Instances that take traffic."""
        return int(np.count_nonzero(self.traffic_rows))

    @property
    def coming(self) -> int:
        """Instances on their way, or ordered. Draining, unreachable and gone ones count nowhere."""
        return self.rising + sum(each.phase in COMING for each in self.instances)

    @property
    def size(self) -> int:
        """Instances that the pool has: ready, coming, and those that only can't be seen."""
        return self.ready + self.coming + self.vanished

    def covered(self, signal: Signal) -> bool:
        """Whether enough of a windowed signal is there for it to speak for the pool."""
        share = trust.coverage(self.column(signal), self.rate_rows).share
        return share >= self.policy.evidence.coverage


def group_rows(instances: Sequence[Instance]) -> dict[PoolName, npt.NDArray[np.intp]]:
    """Row numbers by pool, in id order, whatever the order they came in."""
    rows: dict[PoolName, list[int]] = {}
    for row, each in enumerate(instances):
        rows.setdefault(each.pool, []).append(row)
    return {
        pool: np.array(sorted(members, key=lambda row: instances[row].instance_id), dtype=np.intp)
        for pool, members in rows.items()
    }


def view_of(
    observation: Observation,
    policies: Policies,
    pool: PoolName,
    memory: State,
    rows: npt.NDArray[np.intp],
) -> PoolView:
    """Apply trust to one pool's part of an observation. Raises BrokenPolicy."""
    state, moves = memory.pools.get(pool, PoolState()), [each for each in memory.moves if each.pool == pool]
    policy = policies.pools[pool]
    profile = _profile(policies, policy)
    now, evidence = observation.now, policy.evidence
    gap = trust.in_gap(state, now, evidence)
    instances = _leaving(tuple(observation.instances[row] for row in rows.tolist()), moves)
    readings = _readings(observation, policy, gap=gap)
    mix = mix_in_use(readings, state)
    backends = _backends(observation.gateways, pool)
    work = _work(backends, instances)
    signals = {
        signal: trust.within_physics(
            signal, trust.fresh(column.take(rows), now, evidence.max_age_s), profile, mix.mix
        )
        for signal, column in observation.signals.items()
    }
    signals, evidence_of_freezing = _thawed(signals, instances, work, state, observation)
    by_number = observation.reach is Reach.REPLICAS
    words = _in_force(observation.holds, pool, now)
    order = asked(policy, profile, state, now, standing(instances)) if by_number else Asked()
    return PoolView(
        kind=observation.kind,
        now=now,
        policy=policy,
        profile=profile,
        state=state,
        instances=instances,
        signals=_without_gap(signals) if gap else signals,
        readings=readings,
        backends=backends,
        gateways_missing=sum(isinstance(each, Missing) for each in observation.gateways.values()),
        holds=tuple(each for each in words if each.effect is Effect.HOLD),
        inventory_known=not isinstance(observation.inventory, Missing),
        mix=mix,
        gauge_rows=trust.expected(instances, now, evidence.max_age_s),
        rate_rows=trust.expected(instances, now, evidence.window_s),
        traffic_rows=np.array([each.phase in TAKES_TRAFFIC for each in instances], dtype=np.bool_),
        work=work,
        suspects=evidence_of_freezing,
        rising=_rising(instances, moves) + order.rising,
        vanished=order.vanished,
        four_scrapes_s=trust.four_scrapes(observation.source.interval_s),
        by_number=by_number,
        asked=_standing_order(observation.inventory, pool),
        pin=next((each for each in reversed(words) if each.effect is Effect.PIN_INSTANCES), None),
        weight_pins={
            each.instance: each for each in words if each.instance and each.effect is Effect.PIN_WEIGHT
        },
    )


def standing(instances: Iterable[Instance]) -> int:
    """Instances that take traffic or come up, as far as they are seen."""
    return sum(each.phase in TAKES_TRAFFIC | COMING for each in instances)


def _standing_order(inventory: Inventory | Missing, pool: PoolName) -> int | None:
    return dict(inventory.asked).get(pool) if isinstance(inventory, Inventory) else None


def _leaving(instances: Sequence[Instance], moves: Sequence[Move]) -> tuple[Instance, ...]:
    """Who is on its way out takes no traffic any more and counts as nothing that is coming."""
    down = {each.instance for each in moves if each.to is not Life.AWAKE}
    up = TAKES_TRAFFIC | COMING
    return tuple(
        replace(each, phase=Phase.DRAINING) if each.instance_id in down and each.phase in up else each
        for each in instances
    )


def _rising(instances: Sequence[Instance], moves: Sequence[Move]) -> int:
    counted = {each.instance_id for each in instances if each.phase in TAKES_TRAFFIC | COMING}
    return sum(each.to is Life.AWAKE and each.instance not in counted for each in moves)


def mix_in_use(readings: Mapping[PoolSignal, Reading], state: PoolState) -> MixInUse:
    """The measured mix, else the remembered one, else the neutral one."""
    moments = [
        readings.get(signal)
        for signal in (PoolSignal.PROMPT_MEAN, PoolSignal.OUTPUT_MEAN, PoolSignal.OUTPUT_SQUARE_MEAN)
    ]
    values = [each.value for each in moments if isinstance(each, Known) and each.value > 0.0]
    if len(values) == len(moments):
        return MixInUse(Mix(*values), "measured")
    if state.mix is not None:
        return MixInUse(state.mix, "remembered")
    return MixInUse(NEUTRAL_MIX, "neutral")


def _profile(policies: Policies, policy: PoolPolicy) -> Profile:
    if policy.profile not in policies.profiles:
        raise BrokenPolicy(f"profile {policy.profile!r} is not among {sorted(policies.profiles)}")
    if policy.capacity.minimum > policy.capacity.maximum:
        raise BrokenPolicy(f"minimum {policy.capacity.minimum} is above maximum {policy.capacity.maximum}")
    return policies.profiles[policy.profile]


def _readings(observation: Observation, policy: PoolPolicy, *, gap: bool) -> dict[PoolSignal, Reading]:
    trusted = {
        signal: trust.trusted_reading(signal, reading, observation.now, policy.evidence, gap=gap)
        for signal, reading in observation.pools.get(policy.pool, {}).items()
    }
    interval_s = observation.source.interval_s
    for came, refused in _DEMAND:
        if came in trusted:
            trusted[came] = trust.conserved_arrivals(trusted, interval_s, came, refused)
    return trusted


_DEMAND = (
    (PoolSignal.ARRIVALS, PoolSignal.REFUSALS),
    (PoolSignal.ARRIVALS_NOW, PoolSignal.REFUSALS_NOW),
)


def _backends(gateways: Mapping[str, GatewayView | Missing], pool: PoolName) -> tuple[Backend, ...]:
    return tuple(
        Backend(name, gateway.capabilities, backend)
        for name, gateway in sorted(gateways.items())
        if isinstance(gateway, GatewayView)
        for backend in gateway.backends
        if backend.pool == pool
    )


def _work(backends: Sequence[Backend], instances: Sequence[Instance]) -> trust.Work:
    row_of = {each.instance_id: row for row, each in enumerate(instances)}
    in_flight, completed = np.zeros(len(instances)), np.zeros(len(instances))
    counted = np.zeros(len(instances), dtype=np.bool_)
    for backend in backends:
        for server in backend.view.servers:
            row = row_of.get(server.instance_id)
            if row is not None:
                in_flight[row] += server.in_flight
                completed[row] += server.completed_total
                counted[row] = True
    return trust.Work(in_flight, completed, counted)


def _thawed(
    signals: dict[Signal, Column],
    instances: Sequence[Instance],
    work: trust.Work,
    state: PoolState,
    observation: Observation,
) -> tuple[dict[Signal, Column], dict[int, SeenCounters]]:
    """Engine signals without those of frozen instances, and the evidence for the next cycle."""
    if Signal.PROGRESS not in signals or Signal.RUNNING not in signals:
        return signals, {}
    now = observation.now
    remembered = {
        row: state.suspects[each.instance_id]
        for row, each in enumerate(instances)
        if each.instance_id in state.suspects
    }
    evidence = trust.suspects(signals[Signal.PROGRESS], signals[Signal.RUNNING], work, remembered, now)
    verdict = trust.frozen(evidence, now, observation.source.interval_s, len(instances))
    return {
        signal: column if signal in trust.GPU_SIGNALS else column.without(verdict, Cause.FROZEN)
        for signal, column in signals.items()
    }, evidence


def _without_gap(signals: Mapping[Signal, Column]) -> dict[Signal, Column]:
    return {
        signal: column.without(column.ok, Cause.WINDOW_TOO_SHORT) if signal in trust.WINDOWED else column
        for signal, column in signals.items()
    }


def _in_force(holds: Sequence[Hold], pool: PoolName, now: float) -> tuple[Hold, ...]:
    """What people say of a pool now, oldest first."""
    return tuple(
        hold
        for hold in sorted(holds, key=lambda each: each.since)
        if hold.pool in {None, pool} and hold.since <= now and (hold.until is None or now < hold.until)
    )
