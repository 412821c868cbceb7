"""Arithmetic of routing weights: arrays in, arrays out. A weight of 1.0 is the pool's usual share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controlplane.domain.readings import Bools, Floats

UNIT = 100
"""A weight of 1.0 in a gateway's own range, where its range allows."""

MOST_CLIPS = 32

RAMP_S = 10.0
"""How long it takes until an instance that has come up has its whole limit."""

Ints = npt.NDArray[np.int64]


def relative(speed: Floats, believed: Bools, fallback: Floats) -> Floats:
    """Speeds relative to the median of the believed ones; `fallback` where not believed, and for
    all where fewer than two are: a lone instance has nothing to be compared with."""
    if np.count_nonzero(believed) < 2:
        return fallback
    middle = float(np.median(speed[believed]))
    return np.where(believed, speed / middle, fallback)


def within_deadband(weights: Floats, deadband: float) -> Floats:
    """Exactly 1.0 for every weight that lies within the deadband around it."""
    return np.where(np.abs(weights - 1.0) <= deadband, 1.0, weights)


def one_step(weights: Floats, last: Floats, step: float) -> Floats:
    """Each weight no further than the share `step` from its last one."""
    return np.clip(weights, last * (1.0 - step), last * (1.0 + step))


def within_range(weights: Floats, floor: float, ceiling: float, never_raised: Bools) -> Floats:
    """Each weight within floor and ceiling times the pool's median.

    `never_raised`: rows that the floor must not lift, because nothing is known of them. Clipping an
    even number of weights may move their median, by less each time: twice is nearly always enough.
    """
    clipped = weights
    for _ in range(MOST_CLIPS):
        before, middle = clipped, float(np.median(clipped)) if clipped.size else 0.0
        raised = np.where(never_raised, before, np.maximum(before, floor * middle))
        clipped = np.minimum(raised, ceiling * middle)
        if np.array_equal(before, clipped):
            break
    return clipped


def unit_of(weight_max: int, ceiling: float) -> int:
    """A weight of 1.0 in a gateway's range of 1..`weight_max`, so that `ceiling` still fits."""
    return max(1, min(UNIT, int(weight_max / ceiling)))


def quantise(weights: Floats, unit: int, weight_max: int) -> Ints:
    """Whole levels by largest remainder: their sum is the rounded sum of `weights * unit`, as far
    as the range allows. Nobody becomes zero by rounding. Earlier rows win ties."""
    if not weights.size:
        return np.zeros(0, dtype=np.int64)
    exact = weights * unit
    levels = np.floor(exact).astype(np.int64)
    missing = int(np.rint(np.sum(exact))) - int(np.sum(levels))
    # Rounded, so that equal remainders are equal on every processor.
    order = np.argsort(-np.round(exact - levels, 6), kind="stable")
    levels[order[:missing]] += 1
    return _never_zero(np.minimum(levels, weight_max))


def _never_zero(levels: Ints) -> Ints:
    """Lift zeros to 1, paid for by the largest as long as that can pay."""
    zeros = np.flatnonzero(levels < 1)
    levels[zeros] = 1
    for _ in zeros.tolist():
        richest = int(np.argmax(levels))
        if levels[richest] > 1:
            levels[richest] -= 1
    return levels


def limits(weights: Floats, pool_limit: int, ramp: Floats | float = 1.0) -> Ints:
    """Requests in flight of each instance: the pool's limit, less for the slow ones and for those that
    have only just come (`ramp`, 0..1), never below 1."""
    levels: Ints = np.maximum(1, np.rint(pool_limit * np.minimum(1.0, weights) * ramp)).astype(np.int64)
    return levels


def ramp(ready_s: Floats) -> Floats:
    """Share of its limit that an instance gets which has been ready for `ready_s` seconds: slow out. Its
    caches are empty, and a queue that fell upon it at once would wait there and not at the gateway."""
    return np.clip(ready_s / RAMP_S, 0.0, 1.0)


def shares(total: Ints, parts: int) -> Ints:
    """A limit shared equally among `parts` gateways: the smaller share, at least 1.

    By measured share of arrivals it would be better; with one gateway it is the whole.
    """
    shared: Ints = np.maximum(1, total // max(1, parts))
    return shared
