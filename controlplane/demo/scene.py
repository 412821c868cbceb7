"""What the live view shows, as plain data: recorded cycles in, rows out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controlplane.domain.callers import latency
from controlplane.domain.gateway import ServerView
from controlplane.domain.imbalance import busyness, of_busyness, of_utilisation
from controlplane.domain.load import speeds
from controlplane.domain.readings import Known, PoolSignal, Signal
from controlplane.domain.routing import UNIT, relative
from controlplane.domain.view import PoolView, group_rows, view_of
from controlplane.domain.words import slot
from controlplane.ports import Frame

APART = 0.10
"""An instance differs from its fellows where its weight or speed is this far from the pool's usual."""

MOST_APART = 6


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool. None: not known now. `seen`: share of its instances that are seen, 0..1; `watch`: by whose
    watch the latency is."""

    pool: str
    instances: int
    gpus: int
    seen: float
    running: int | None
    waiting: int | None
    queue: int | None
    e2e_p95_s: float | None
    ttft_p95_s: float | None
    watch: str
    busyness: float | None
    imbalance_busyness: float | None
    imbalance_utilisation: float | None


@dataclass(frozen=True, slots=True)
class Apart:
    """One instance that differs. `weight` in percent of the usual, `speed` relative to its pool."""

    slot: str
    weight: int
    limit: int
    in_flight: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision that changed something. `at` in epoch seconds."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of a demonstration. Times in seconds."""

    title: str
    look: str
    elapsed_s: float
    duration_s: float | None
    pools: Sequence[PoolRow] = ()
    apart: Sequence[Apart] = ()
    decided: Sequence[Decided] = ()
    loans: Mapping[str, int] = field(default_factory=dict)
    pages: Mapping[str, int] = field(default_factory=dict)
    requests: str = ""
    generator_lag_s: float | None = None
    twin_lag_s: float | None = None


def pool_rows(weights: Frame | None, capacity: Frame | None) -> tuple[PoolRow, ...]:
    """A row a pool: counts from the newest weights cycle, latency and utilisation from the newest
    capacity cycle, which alone asks for them."""
    fresh = {view.policy.pool: view for view in views(weights)}
    slow = {view.policy.pool: view for view in views(capacity)}
    ordered = sorted(fresh.values(), key=lambda view: (-view.policy.priority, view.policy.pool))
    return tuple(_row(view, slow.get(view.policy.pool)) for view in ordered)


def instances_apart(weights: Frame | None) -> tuple[Apart, ...]:
    """Instances whose weight or measured speed differs, the furthest first."""
    found = [each for view in views(weights) for each in _apart(view)]
    furthest = sorted(found, key=lambda each: min(each.weight / UNIT, each.speed or 1.0))
    return tuple(furthest[:MOST_APART])


def views(frame: Frame | None) -> Iterable[PoolView]:
    """Each pool as its cycle saw it, computed again from what was recorded."""
    if frame is None:
        return
    rows = group_rows(frame.observation.instances)
    for pool in frame.policies.pools:
        yield view_of(
            frame.observation, frame.policies, pool, frame.state, rows.get(pool, np.zeros(0, np.intp))
        )


def _row(now: PoolView, slow: PoolView | None) -> PoolRow:
    busy = busyness(now)[now.traffic_rows]
    return PoolRow(
        pool=now.policy.pool,
        instances=now.ready,
        gpus=sum(each.tp for each in now.instances),
        seen=now.coverage.share,
        running=_sum(now, Signal.RUNNING),
        waiting=None if slow is None else _sum(slow, Signal.WAITING),
        queue=sum(each.view.queue for each in now.backends) if now.backends else None,
        e2e_p95_s=_seconds(slow, PoolSignal.E2E_P95),
        ttft_p95_s=_seconds(slow, PoolSignal.TTFT_P95),
        watch="" if slow is None else latency(slow, PoolSignal.TTFT_P95, math.inf).source,
        busyness=float(np.nanmean(busy)) if np.isfinite(busy).any() else None,
        imbalance_busyness=of_busyness(now).value,
        imbalance_utilisation=None if slow is None else of_utilisation(slow).value,
    )


def _sum(view: PoolView, signal: Signal) -> int | None:
    column = view.column(signal)
    chosen = column.ok & view.traffic_rows
    return int(np.sum(column.value[chosen])) if chosen.any() else None


def _seconds(view: PoolView | None, signal: PoolSignal) -> float | None:
    reading = None if view is None else latency(view, signal, math.inf).reading
    return reading.value if isinstance(reading, Known) else None


def _apart(view: PoolView) -> Iterable[Apart]:
    absolute, believed = speeds(view)
    relatives = relative(absolute, believed, np.ones(len(view.instances)))
    servers: dict[str, ServerView] = {
        server.instance_id: server for backend in view.backends for server in backend.view.servers
    }
    for row, each in enumerate(view.instances):
        server = servers.get(each.instance_id)
        speed = float(relatives[row]) if believed[row] else None
        if server and max(abs(server.weight / UNIT - 1.0), abs((speed or 1.0) - 1.0)) > APART:
            yield Apart(slot(each.instance_id), server.weight, server.limit, server.in_flight, speed)
