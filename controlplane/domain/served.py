"""The gateways' own count of what each instance gets done: a check on what engines claim."""

from __future__ import annotations

import numpy as np

from controlplane.domain.ids import InstanceId
from controlplane.domain.numbers import significant
from controlplane.domain.profile import slope_ms
from controlplane.domain.readings import Floats
from controlplane.domain.state import Served
from controlplane.domain.view import PoolView

NOISE = 3.0
"""Standard errors allowed: with k requests ended a rate is uncertain by about 1/sqrt(k)."""


def counted(view: PoolView) -> dict[InstanceId, Served]:
    """The counts brought up to now. While some gateway does not answer, they stand still:
    a sum over fewer gateways would look like a restart."""
    if view.gateways_missing or not view.backends:
        return dict(view.state.served)
    return {
        each.instance_id: _counted(view, row, view.state.served.get(each.instance_id))
        for row, each in enumerate(view.instances)
        if view.work.counted[row]
    }


def _counted(view: PoolView, row: int, before: Served | None) -> Served:
    total, now = int(view.work.completed[row]), view.now
    if before is None or now < before.at:
        return Served(now, total, 0.0, 0.0, 0.0)
    elapsed = now - before.at
    kept = max(0.0, 1.0 - elapsed / view.policy.evidence.window_s)
    # A gateway that restarted counts from zero: what it ended since then is the new total.
    ended = total - before.completed_total if total >= before.completed_total else total
    return Served(
        now,
        total,
        significant(before.completed * kept + ended),
        significant(before.busy_s * kept + float(view.work.in_flight[row]) * elapsed),
        significant(before.watched_s * kept + elapsed),
    )


def supported(view: PoolView, served: dict[InstanceId, Served]) -> Floats:
    """The largest relative speed that the gateways' counts support, by row; never below 1, and
    exactly 1 where nothing ended yet.

    Little: time in service is request-seconds by requests ended. Divided by the profile's step
    time at the same concurrency this is a speed, whose scale falls out against the pool's median.
    """
    ended, rate = np.zeros(len(view.instances)), np.zeros(len(view.instances))
    slope = slope_ms(view.profile, view.mix.mix)
    for row, each in enumerate(view.instances):
        count = served.get(each.instance_id)
        if count is not None and count.completed >= 1.0 and count.busy_s > 0.0:
            running = count.busy_s / count.watched_s
            ended[row] = count.completed
            rate[row] = count.completed / count.busy_s * (view.profile.d0_ms + running * slope)
    proven = ended > 0.0
    if not np.any(proven):
        return np.ones(len(view.instances))
    allowance = 1.0 + NOISE / np.sqrt(np.where(proven, ended, 1.0))
    return np.maximum(1.0, np.where(proven, rate / float(np.median(rate[proven])) * allowance, 1.0))
