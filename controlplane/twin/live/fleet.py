"""Which fleet the twin plays: nodes, pools, and where each instance sits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import yaml

from controlplane.twin.engine.costs import Costs

GPUS_A_NODE = 8
GPU_TYPE = "H100"
SPREAD = 0.03
SPREAD_LIMIT = 0.10
HOST_MEMORY_GIB = 2048.0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A pool of the twin. `seats`: max_num_seqs, small so that two cores can play the whole fleet."""

    name: str
    model: str
    profile: str
    tp: int
    instances: int
    seats: int


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one instance sits."""

    slot: str
    pool: PoolPlan
    node: str
    gpus: tuple[int, ...]
    speed: float


SMALL = (
    PoolPlan("chat-8b", "llama-3.1-8b", "llama-3.1-8b-h100-tp1", 1, 12, 6),
    PoolPlan("batch-eval", "eval-8b", "eval-8b-h100-tp1", 1, 4, 6),
    PoolPlan("reason-70b", "llama-3.1-70b", "llama-3.1-70b-h100-tp4", 4, 4, 6),
    PoolPlan("vision", "vision-12b", "vision-12b-h100-tp2", 2, 4, 6),
)
SMALL_NODES = 6

FLEETS: Mapping[str, tuple[tuple[PoolPlan, ...], int]] = {"small": (SMALL, SMALL_NODES)}
"""Fleets by name: pools in order of placement, and the number of nodes; what is left is buffer."""


def seats(name: str, seed: int) -> tuple[list[Seat], dict[str, str | None]]:
    """All instances of a fleet, and each node's pool (None: buffer). Speeds: a healthy spread.

    Nodes are filled in order; a node belongs to the pool that placed the first instance there.
    """
    plans, nodes = FLEETS[name]
    rng = random.Random(seed)  # noqa: S311 - a spread of card speeds, no secret
    placed: list[Seat] = []
    owner: dict[str, str | None] = {f"n{number}": None for number in range(1, nodes + 1)}
    cursor = 0
    for plan in plans:
        for number in range(1, plan.instances + 1):
            node = f"n{cursor // GPUS_A_NODE + 1}"
            first = cursor % GPUS_A_NODE
            speed = 1.0 + max(-SPREAD_LIMIT, min(SPREAD_LIMIT, rng.gauss(0.0, SPREAD)))
            placed.append(
                Seat(f"{plan.name}-{number:02d}", plan, node, tuple(range(first, first + plan.tp)), speed)
            )
            owner[node] = owner[node] or plan.name
            cursor += plan.tp
    return placed, owner


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
