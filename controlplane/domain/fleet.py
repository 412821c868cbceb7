"""Who exists: nodes and instances, as the orchestrator says, at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.ids import InstanceId, NodeId, PoolName


class Phase(StrEnum):
    """Where an instance stands in its life."""

    REQUESTED = "requested"
    LOADING = "loading"  # weights on their way; answers nothing yet
    HEALTHY = "healthy"  # answers /health, has not answered a request yet
    WARMING = "warming"  # its warm-up request is under way
    ADMITTED = "admitted"  # takes traffic, its limit still ramps
    SERVING = "serving"
    DRAINING = "draining"  # takes nothing new, finishes the old
    ASLEEP = "asleep"  # process alive, weights in host memory
    WAKING = "waking"  # weights on their way back to the GPUs
    HOT = "hot"  # loaded, taking no traffic
    UNREACHABLE = "unreachable"  # should serve and does not answer
    GONE = "gone"


TAKES_TRAFFIC = frozenset({Phase.ADMITTED, Phase.SERVING})
COMING = frozenset({Phase.REQUESTED, Phase.LOADING, Phase.HEALTHY, Phase.WARMING, Phase.WAKING})
OFF = frozenset({Phase.ASLEEP, Phase.GONE})
"""Phases that hold no GPU. A tenth of a sleeper's GPU memory stays taken, which is another budget."""


class Life(StrEnum):
    """How far up an instance should be: the level of an order to its orchestrator."""

    GONE = "gone"
    ASLEEP = "asleep"
    AWAKE = "awake"

    @property
    def level(self) -> int:
        """As an action's number: gone 0, asleep 1, awake 2."""
        return tuple(Life).index(self)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with GPUs. `pool` is None while it belongs to the buffer.

    `unavailable_gpus`: XID or ECC errors, cordoned by others, spot notice, down.
    `models`: what lies on its local disk. Host memory in GiB.
    """

    node_id: NodeId
    gpu_type: str
    gpu_count: int
    pool: PoolName | None = None
    unavailable_gpus: int = 0
    models: tuple[str, ...] = ()
    host_memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Instance:
    """One engine process on `tp` GPUs of one node. `address` is `host:port`.

    `lent_by` names the pool (or `buffer`) whose GPUs it uses on loan. `gpus`: their indices on
    the node, empty where the orchestrator does not say. `managed`: made or adopted by us.
    `started_at`, `ready_at`: epoch seconds; `ready_at` is None until it first answered.
    """

    instance_id: InstanceId
    pool: PoolName
    node: NodeId
    tp: int
    phase: Phase
    address: str
    started_at: float
    ready_at: float | None = None
    lent_by: PoolName | None = None
    gpus: tuple[int, ...] = ()
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance is to be made, or stands: GPU indices of one node."""

    node: NodeId
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The orchestrator's word on what exists, at `taken_at` (epoch seconds).

    `nodes` is empty where it knows of none. `asked`: by pool, the number of instances that stands as an
    order, where orders are such numbers; a pool of which none stands is absent.
    """

    taken_at: float
    nodes: tuple[Node, ...]
    instances: tuple[Instance, ...]
    asked: tuple[tuple[PoolName, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuAccount:
    """Every GPU of the fleet, once: `sum(pools) + buffer + unavailable == fleet`.

    `unaccounted` is what breaks that sum; it is 0 or somebody counts wrongly.
    """

    fleet: int
    pools: tuple[tuple[PoolName, int], ...]
    buffer: int
    unavailable: int
    unaccounted: int
