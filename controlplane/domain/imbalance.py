"""The one definition of a pool's imbalance: max over i of |u_i - mean(u)|.

Over instances that take traffic (never draining, loading or unreachable ones). Undefined, which
is not zero, for fewer than two instances and below one running request per instance on average:
a healthy idle pool would show more than 0.30 nearly always. Unknown, which is neither, where the
policy's coverage is not met: the one that is not seen may be the hot one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controlplane.domain.ids import InstanceId
from controlplane.domain.load import speeds
from controlplane.domain.profile import largest_concurrency
from controlplane.domain.readings import Bools, Cause, Column, Floats, Signal
from controlplane.domain.trust import Coverage
from controlplane.domain.view import PoolView

COUNTERS = (Signal.SM_ACTIVE, Signal.DRAM_ACTIVE, Signal.GPU_UTILISATION)
"""Utilisation counters, best first. Which one was used is always said."""


UNDEFINED = frozenset({Cause.TOO_FEW, Cause.NO_TRAFFIC})
"""Causes by which a pool is known to have no imbalance; any other is a matter of sight."""


@dataclass(frozen=True, slots=True)
class Hottest:
    """The instance with the largest figure; of several, the one with the most running requests."""

    instance: InstanceId
    value: float


@dataclass(frozen=True, slots=True)
class Imbalance:
    """`value` in 0..1, or None with the cause; `counter` names what was compared."""

    value: float | None
    counter: str
    cause: Cause = Cause.NONE
    hottest: Hottest | None = None


def of_utilisation(view: PoolView) -> Imbalance:
    """Imbalance of GPU utilisation, on the best counter that the pool's instances export."""
    columns = {signal: view.column(signal) for signal in COUNTERS}
    exported = [signal for signal in COUNTERS if np.any(columns[signal].ok & view.traffic_rows)]
    if not exported:
        return Imbalance(None, "utilisation", Cause.NOT_EXPORTED)
    # The best one that says enough: half a pool's better counter tells less than the whole pool's other.
    chosen = next((each for each in exported if _enough(view, columns[each].ok)), exported[0])
    return _spread(view, np.where(columns[chosen].ok, columns[chosen].value, np.nan), chosen.value)


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
    cause = _why_none(view, rows, running)
    if cause is not Cause.NONE:
        return Imbalance(None, counter, cause)
    chosen = values[rows]
    spread = float(np.max(np.abs(chosen - np.mean(chosen))))
    return Imbalance(spread, counter, hottest=_hottest(view, rows, values, running))


def _why_none(view: PoolView, rows: Bools, running: Column) -> Cause:
    if np.count_nonzero(view.traffic_rows) < 2:
        return Cause.TOO_FEW
    if not _enough(view, rows):
        return Cause.UNSEEN
    return Cause.NO_TRAFFIC if float(np.mean(running.value[rows])) < 1.0 else Cause.NONE


def _enough(view: PoolView, seen: Bools) -> bool:
    """Whether two are seen, and the policy's share of those that have a window behind them."""
    due = view.traffic_rows & view.rate_rows
    share = Coverage(int(np.count_nonzero(seen & due)), int(np.count_nonzero(due))).share
    return share >= view.policy.evidence.coverage and int(np.count_nonzero(seen & view.traffic_rows)) >= 2


def _hottest(view: PoolView, rows: Bools, values: Floats, running: Column) -> Hottest:
    row = max(np.flatnonzero(rows).tolist(), key=lambda each: (values[each], running.value[each]))
    return Hottest(view.instances[row].instance_id, float(values[row]))
