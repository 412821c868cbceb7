"""Which fleet the twin plays: nodes, pools, and where each instance sits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

import yaml

from controlplane.twin.engine.costs import Costs

GPUS_A_NODE = 8
GPU_TYPE = "H100"
SPREAD = 0.03
SPREAD_LIMIT = 0.10
HOST_MEMORY_GIB = 2048.0
"""Of a node; the weights of what sleeps there have to fit."""

BUFFER = "buffer"
"""Who lends what stands on a node that belongs to no pool."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A pool of the twin. `seats`: max_num_seqs, small so that two cores can play the whole fleet.

    `instances` stand on nodes of the pool's own, or, where `lent_by` says so, on the buffer;
    `sleepers` sleep there besides. `weights_gib`: host memory that one asleep takes. `wake_s`,
    `cold_start_s`: seconds until it is awake, or loaded (None: as long as the command says).
    """

    name: str
    model: str
    profile: str
    tp: int
    instances: int
    seats: int
    weights_gib: float = 16.0
    wake_s: float = 2.0
    cold_start_s: float | None = None
    lent_by: str | None = None
    sleepers: int = 0
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one instance sits at the start."""

    slot: str
    pool: PoolPlan
    node: str
    gpus: tuple[int, ...]
    speed: float
    asleep: bool = False


SMALL = (
    PoolPlan("chat-8b", "llama-3.1-8b", "llama-3.1-8b-h100-tp1", 1, 12, 6, sleepers=4),
    PoolPlan("batch-eval", "eval-8b", "eval-8b-h100-tp1", 1, 4, 6, lent_by=BUFFER, managed=True),
    PoolPlan("reason-70b", "llama-3.1-70b", "llama-3.1-70b-h100-tp4", 4, 4, 6, weights_gib=140.0, wake_s=4.0),
    PoolPlan("vision", "vision-12b", "vision-12b-h100-tp2", 2, 4, 6, weights_gib=24.0),
)
SMALL_NODES = 6

FLEETS: Mapping[str, tuple[tuple[PoolPlan, ...], int]] = {"small": (SMALL, SMALL_NODES)}
"""Fleets by name: pools in order of placement, and the number of nodes; what is left is buffer."""


def seats(name: str, seed: int) -> tuple[list[Seat], dict[str, str | None]]:
    """All instances of a fleet, and each node's pool (None: buffer). Speeds: a healthy spread.

    Pools fill nodes of their own in order; what is lent, and what sleeps, fills the first node of the buffer.
    """
    plans, nodes = FLEETS[name]
    starts, owner = _layout(plans, nodes)
    rng = random.Random(seed)  # noqa: S311 - a spread of card speeds, no secret
    awake = [
        _seat(plan, f"{plan.name}-{number + 1:02d}", starts[plan.name] + number * plan.tp, spread(rng))
        for plan in plans
        for number in range(plan.instances)
    ]
    buffer = list(owner.values()).index(None) * GPUS_A_NODE if None in owner.values() else 0
    asleep = [
        replace(_seat(plan, f"{plan.name}-s{number:02d}", cursor, spread(rng)), asleep=True)
        for plan, number, cursor in _beds(plans, buffer)
    ]
    return awake + asleep, owner


def _layout(plans: Iterable[PoolPlan], nodes: int) -> tuple[dict[str, int], dict[str, str | None]]:
    """The first GPU of each pool, counted over the whole fleet, and each node's pool. What is lent comes
    last: it stands on nodes that belong to nobody."""
    starts: dict[str, int] = {}
    owner: dict[str, str | None] = {f"n{number + 1}": None for number in range(nodes)}
    cursor = 0
    for plan in sorted(plans, key=lambda each: each.lent_by is not None):
        starts[plan.name] = _up_to(cursor, plan.tp)
        cursor = starts[plan.name] + plan.instances * plan.tp
        if plan.lent_by is None:
            cursor = _up_to(cursor, GPUS_A_NODE)
            own = range(starts[plan.name] // GPUS_A_NODE, cursor // GPUS_A_NODE)
            owner |= {f"n{number + 1}": plan.name for number in own}
    return starts, owner


def _beds(plans: Iterable[PoolPlan], cursor: int) -> Iterator[tuple[PoolPlan, int, int]]:
    """Pool, number and first GPU of each that sleeps at the start."""
    for plan in plans:
        cursor = _up_to(cursor, plan.tp)
        for number in range(1, plan.sleepers + 1):
            yield plan, number, cursor
            cursor += plan.tp


def _up_to(cursor: int, multiple: int) -> int:
    """The next GPU from here on at which something of this size can begin, and stay on one node."""
    return -(-cursor // multiple) * multiple


def _seat(plan: PoolPlan, slot: str, cursor: int, speed: float) -> Seat:
    first = cursor % GPUS_A_NODE
    return Seat(slot, plan, f"n{cursor // GPUS_A_NODE + 1}", tuple(range(first, first + plan.tp)), speed)


def spread(rng: random.Random) -> float:
    """The speed of one instance's cards, 1.0 as the profile says."""
    return 1.0 + max(-SPREAD_LIMIT, min(SPREAD_LIMIT, rng.gauss(0.0, SPREAD)))


def profile_of(name: str) -> Mapping[str, object]:
    """A profile as its file says. FileNotFoundError where none has that name."""
    text = files("controlplane.profiles").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)  # noqa: S101 - shipped with the product and tested
    return loaded


def costs_of(plan: PoolPlan) -> Costs:
    """The truth that a pool's instances play by."""
    return costs_from(plan.profile, plan.seats)


def costs_from(profile: str, max_num_seqs: int) -> Costs:
    """A profile's costs, with as many seats as given."""
    content = profile_of(profile)

    def number(key: str) -> float:
        return float(str(content[key]))

    return Costs(
        d0_ms=number("d0_ms"),
        d1_ms=number("d1_ms"),
        d2_ms=number("d2_ms"),
        p1_ms=number("p1_ms"),
        f=number("f"),
        ttft_overhead_ms=number("ttft_overhead_ms"),
        kv_tokens=int(number("kv_tokens")),
        max_num_seqs=max_num_seqs,
    )
