"""The one definition of a pool's imbalance: max over i of |u_i - mean(u)|.

Over instances that take traffic (never draining, loading or unreachable ones). Undefined, which
is not zero, for fewer than two instances and below one running request per instance on average:
a healthy idle pool would show more than 0.30 nearly always.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controlplane.domain.load import speeds
from controlplane.domain.profile import largest_concurrency
from controlplane.domain.readings import Cause, Column, Floats, Signal
from controlplane.domain.view import PoolView

COUNTERS = (Signal.SM_ACTIVE, Signal.DRAM_ACTIVE, Signal.GPU_UTILISATION)
"""Utilisation counters, best first. Which one was used is always said."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """`value` in 0..1, or None with the cause; `counter` names what was compared."""

    value: float | None
    counter: str
    cause: Cause = Cause.NONE


def of_utilisation(view: PoolView) -> Imbalance:
    """Imbalance of GPU utilisation, on the best counter that the pool's instances export."""
    for signal in COUNTERS:
        column = view.column(signal)
        if np.any(column.ok & view.traffic_rows):
            return _spread(view, column.value, signal.value)
    return Imbalance(None, "utilisation", Cause.NOT_EXPORTED)


def of_busyness(view: PoolView) -> Imbalance:
    """Imbalance of busyness, which does not saturate as the device counter does."""
    return _spread(view, busyness(view), "busyness")


def busyness(view: PoolView) -> Floats:
    """Mean running requests by the instance's own B*: the profile's, times its measured speed
    (1 where none is believed). NaN where the running count is unknown."""
    slo, running = view.policy.slo, _running(view)
    full = largest_concurrency(view.profile, view.mix.mix, slo.tpot_p95_s * 1e3, slo.ttft_p95_s * 1e3)
    speed, believed = speeds(view)
    share: Floats = running.value / (full * np.where(believed, speed, 1.0))
    return share


def _running(view: PoolView) -> Column:
    mean, gauge = view.column(Signal.RUNNING_MEAN), view.column(Signal.RUNNING)
    return mean if np.any(mean.ok) else gauge


def _spread(view: PoolView, values: Floats, counter: str) -> Imbalance:
    running = _running(view)
    rows = view.traffic_rows & np.isfinite(values) & running.ok
    if np.count_nonzero(rows) < 2:
        return Imbalance(None, counter, Cause.TOO_FEW)
    if float(np.mean(running.value[rows])) < 1.0:
        return Imbalance(None, counter, Cause.NO_TRAFFIC)
    chosen = values[rows]
    return Imbalance(float(np.max(np.abs(chosen - np.mean(chosen)))), counter)
