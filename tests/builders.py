"""Readable factories for the domain's values. Every figure is small enough to check by hand.

`steady_pool` is the usual start: a healthy pool whose readings all tell one story.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controlplane.domain.fleet import Instance, Inventory, Node, Phase
from controlplane.domain.forecast import Forecast
from controlplane.domain.gateway import (
    BackendView,
    Capabilities,
    GatewayView,
    ServerState,
    ServerView,
    WeightMeaning,
)
from controlplane.domain.ids import CycleKind, InstanceId, NodeId, PoolName
from controlplane.domain.observation import Hold, Observation, SourceHealth
from controlplane.domain.policy import CapacityPolicy, Policies, PolicyVersion, PoolPolicy, Slo
from controlplane.domain.profile import Grade, Mix, Profile, step_ms, tokens_per_second
from controlplane.domain.readings import Cause, Column, Known, Missing, PoolSignal, Reading, Signal

NOW = 1_800_000_000.0
"""The instant of a built observation, epoch seconds."""

AGE = 2.0
"""Age in seconds of a built reading."""

NO_FORECAST = Forecast(made_at=NOW)

Value = float | Reading

HAPROXY = Capabilities(
    per_instance_limit=True,
    central_queue=True,
    priority=True,
    zero_weight=True,
    ramp=True,
    weight_meaning=WeightMeaning.CONCURRENCY_WHEN_BUSY,
    weight_max=256,
)


def profile(name: str = "h100-8b", **changes: object) -> Profile:
    """An 8B model on one H100: about 7 ms a step, 40 running sequences at the water level."""
    base = Profile(
        name=name,
        engine="vllm",
        model="llama-3.1-8b",
        gpu="H100",
        tp=1,
        d0_ms=6.4,
        d1_ms=0.012,
        d2_ms=0.000044,
        p1_ms=0.0175,
        f=1.0,
        ttft_overhead_ms=22.0,
        kv_tokens=420_900,
        max_num_seqs=64,
        water_level=40,
        cold_start_p95_s=90.0,
        wake_s=4.0,
        source="written for the tests",
        date="2026-01-01",
        grade=Grade.MODELLED,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


MIX = Mix(prompt_mean=500.0, output_mean=200.0, output_square_mean=80_000.0)
"""Exponential output lengths: E[L^2] = 2 E[L]^2."""


def pool_policy(pool: str = "chat-8b", **changes: object) -> PoolPolicy:
    """A pool of 2 to 40 instances with generous SLOs: the profile's `max_num_seqs` binds."""
    base = PoolPolicy(
        pool=PoolName(pool),
        model="llama-3.1-8b",
        tp=1,
        profile="h100-8b",
        slo=Slo(ttft_p95_s=2.0, tpot_p95_s=0.05),
        capacity=CapacityPolicy(minimum=2, maximum=40),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def policies(*pools: PoolPolicy, profiles: Sequence[Profile] = ()) -> Policies:
    """Policies in force; `chat-8b` alone where none is given."""
    chosen = pools or (pool_policy(),)
    return Policies(
        version=PolicyVersion(commit="", content_hash="0" * 64),
        pools={policy.pool: policy for policy in chosen},
        profiles={each.name: each for each in (profiles or (profile(),))},
    )


def instance(slot: str, pool: str = "chat-8b", **changes: object) -> Instance:
    """A serving instance in slot `slot`, up for an hour."""
    base = Instance(
        instance_id=InstanceId(f"demo/{slot}@s9k2x1"),
        pool=PoolName(pool),
        node=NodeId("n1"),
        tp=1,
        phase=Phase.SERVING,
        address="127.0.0.1:9000",
        started_at=NOW - 3600.0,
        ready_at=NOW - 3540.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def instances(count: int, pool: str = "chat-8b", **changes: object) -> tuple[Instance, ...]:
    """`count` serving instances: `<pool>-01`, `<pool>-02`, ..."""
    return tuple(instance(f"{pool}-{number:02d}", pool, **changes) for number in range(1, count + 1))


def reading(value: Value, now: float = NOW, age_s: float = AGE) -> Reading:
    """A plain number becomes a reading `age_s` old; readings pass."""
    return value if isinstance(value, Known | Missing) else Known(float(value), now - age_s)


def column(values: Sequence[Value], now: float = NOW, age_s: float = AGE) -> Column:
    """A column of plain numbers and readings."""
    return Column.of([reading(value, now, age_s) for value in values])


def inventory(members: Sequence[Instance], now: float = NOW, spare_nodes: int = 1) -> Inventory:
    """Nodes of 8 GPUs that hold the given instances, and `spare_nodes` in the buffer."""
    homes = sorted({(member.node, member.pool) for member in members})
    nodes = [Node(NodeId(node), "H100", 8, pool) for node, pool in dict(homes).items()]
    spare = [Node(NodeId(f"spare-{number}"), "H100", 8) for number in range(spare_nodes)]
    return Inventory(now, tuple(nodes + spare), tuple(members))


def observation(
    members: Sequence[Instance],
    signals: Mapping[Signal, Sequence[Value]],
    pools: Mapping[str, Mapping[PoolSignal, Value]],
    *,
    kind: CycleKind = CycleKind.CAPACITY,
    now: float = NOW,
    gateways: Mapping[str, GatewayView | Missing] | None = None,
    world: Inventory | Missing | None = None,
    source: SourceHealth | None = None,
    holds: Sequence[Hold] = (),
) -> Observation:
    """An observation of `members` with plain numbers for readings."""
    return Observation(
        cluster="demo",
        kind=kind,
        now=now,
        instances=tuple(members),
        signals={signal: column(values, now) for signal, values in signals.items()},
        pools={
            PoolName(pool): {signal: reading(value, now) for signal, value in readings.items()}
            for pool, readings in pools.items()
        },
        gateways=gateways if gateways is not None else {},
        inventory=world if world is not None else inventory(members, now),
        source=source or SourceHealth(queries=4, interval_s=1.0),
        holds=tuple(holds),
    )


def steady_pool(
    count: int = 4,
    running: float | Sequence[float] = 10.0,
    *,
    pool: str = "chat-8b",
    speed: float | Sequence[float] = 1.0,
    kind: CycleKind = CycleKind.CAPACITY,
    now: float = NOW,
    queue: float = 0.0,
    changes: Mapping[Signal, Sequence[Value]] | None = None,
    pool_changes: Mapping[PoolSignal, Value] | None = None,
    members: Sequence[Instance] | None = None,
    gateways: Mapping[str, GatewayView | Missing] | None = None,
    holds: Sequence[Hold] = (),
) -> Observation:
    """A pool whose readings all agree: `running` sequences an instance at `speed` times the
    profile's pace, nothing waiting inside the engines, and P95s well inside the SLO."""
    chosen = tuple(members) if members is not None else instances(count, pool)
    levels = [running] * len(chosen) if isinstance(running, int | float) else list(running)
    speeds = [speed] * len(chosen) if isinstance(speed, int | float) else list(speed)
    signals = _engine_signals(levels, speeds) | dict(changes or {})
    readings = _pool_signals(levels, speeds, queue) | dict(pool_changes or {})
    return observation(chosen, signals, {pool: readings}, kind=kind, now=now, gateways=gateways, holds=holds)


def _engine_signals(levels: Sequence[float], speeds: Sequence[float]) -> dict[Signal, Sequence[Value]]:
    tokens = [_rate(level, speed) for level, speed in zip(levels, speeds, strict=True)]
    return {
        Signal.UP: [1.0] * len(levels),
        Signal.RUNNING: list(levels),
        Signal.RUNNING_MEAN: list(levels),
        Signal.WAITING: [0.0] * len(levels),
        Signal.STEP_TIME: [_step_s(level, speed) for level, speed in zip(levels, speeds, strict=True)],
        Signal.GENERATION_TOKENS: tokens,
        Signal.PROMPT_TOKENS: [each * MIX.prompt_mean / MIX.output_mean for each in tokens],
        Signal.COMPLETIONS: [each / MIX.output_mean for each in tokens],
        Signal.PROGRESS: [each + 0.5 for each in tokens],
        Signal.SM_ACTIVE: [0.5 if level else 0.0 for level in levels],
        Signal.GPU_UTILISATION: [1.0 if level else 0.0 for level in levels],
    }


def _pool_signals(levels: Sequence[float], speeds: Sequence[float], queue: float) -> dict[PoolSignal, Value]:
    rate = sum(_rate(level, speed) for level, speed in zip(levels, speeds, strict=True)) / MIX.output_mean
    idle = Missing(Cause.NO_TRAFFIC)
    return {
        PoolSignal.ARRIVALS: rate,
        PoolSignal.REFUSALS: 0.0,
        PoolSignal.GATEWAY_QUEUE: queue,
        PoolSignal.GATEWAY_IN_FLIGHT: float(sum(levels)),
        PoolSignal.COMPLETIONS: rate,
        PoolSignal.TTFT_P95: 0.2 if rate else idle,
        PoolSignal.TPOT_P95: 0.01 if rate else idle,
        PoolSignal.E2E_P95: 3.0 if rate else idle,
        PoolSignal.PROMPT_MEAN: MIX.prompt_mean if rate else idle,
        PoolSignal.OUTPUT_MEAN: MIX.output_mean if rate else idle,
        PoolSignal.OUTPUT_SQUARE_MEAN: MIX.output_square_mean if rate else idle,
        PoolSignal.CANCELLED_RATIO: 0.0 if rate else idle,
    }


def _step_s(level: float, speed: float) -> Value:
    return step_ms(profile(), MIX, level) / 1000.0 / speed if level else Missing(Cause.NO_TRAFFIC)


def _rate(level: float, speed: float) -> float:
    return tokens_per_second(profile(), MIX, level) * speed if level else 0.0


def server(
    member: Instance,
    weight: int = 100,
    limit: int = 40,
    *,
    state: ServerState = ServerState.OPEN,
    in_flight: int = 10,
    completed_total: int = 1000,
) -> ServerView:
    """One instance as a gateway has it."""
    return ServerView(member.instance_id, state, weight, limit, in_flight, completed_total)


def gateway(
    servers: Sequence[ServerView],
    pool: str = "chat-8b",
    *,
    queue: int = 0,
    now: float = NOW,
    capabilities: Capabilities = HAPROXY,
) -> GatewayView:
    """A gateway `edge` with one pool."""
    backend = BackendView(
        pool=PoolName(pool),
        queue=queue,
        in_flight=sum(each.in_flight for each in servers),
        arrivals_total=5000,
        refused_total=0,
        servers=tuple(servers),
    )
    return GatewayView("edge", now, "1", capabilities, (backend,))
