"""Our own gateway exporter: what callers saw, by pool. Queue, first token and total, as histograms.

`trimtab_door_queue` is there only while the gateway answers, so its age is the door's. A fleet without the
exporter has none of these, which is no fault: latency is then told from the engines, and said to be.
"""

from __future__ import annotations

from controlplane.adapters.engines.template import Helper, Level, Source, Span, Template
from controlplane.domain.readings import PoolSignal

EDGES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
"""Histogram edges in seconds; the exporter adds the targets of the policies."""


def _quantile(signal: PoolSignal, counted_by: Helper, name: str) -> Template:
    family = f"trimtab_door_{name}_seconds"
    return Template(
        signal,
        Level.POOL,
        Source.DOOR,
        f"histogram_quantile(0.95, sum by ($pool, le) (rate({family}_bucket{{$doors}}[$window])))",
        (f"{family}_bucket", f"{family}_sum", f"{family}_count"),
        span=Span.WINDOW,
        edges=(EDGES_S[0], EDGES_S[-1]),
        counted_by=counted_by,
        quirks="answers that were broken off are in no histogram: they count as misses beside it",
    )


def _count(helper: Helper, name: str) -> Template:
    family = f"trimtab_door_{name}_seconds_count"
    promql = f"sum by ($pool) (increase({family}{{$doors}}[$window]))"
    return Template(helper, Level.POOL, Source.DOOR, promql, (family,), span=Span.WINDOW)


TEMPLATES = (
    _quantile(PoolSignal.DOOR_TTFT_P95, Helper.DOOR_TTFT_COUNT, "ttft"),
    _quantile(PoolSignal.DOOR_E2E_P95, Helper.DOOR_E2E_COUNT, "total"),
    _count(Helper.DOOR_TTFT_COUNT, "ttft"),
    _count(Helper.DOOR_E2E_COUNT, "total"),
    Template(
        Helper.DOOR_AGE,
        Level.POOL,
        Source.DOOR,
        "max by ($pool) (time() - timestamp(trimtab_door_queue{$doors}))",
        ("trimtab_door_queue",),
    ),
    Template(
        Helper.DOORS,
        Level.RULES,
        Source.DOOR,
        "count by (cluster) (up{$doors})",
        ("up",),
        quirks="there also while every exporter is down: then the door is silent, and not absent",
    ),
)
