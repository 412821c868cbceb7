"""E[L^2] of answer lengths from histogram buckets.

Why here and not in PromQL: bucket bounds are labels there, no numbers, and they follow each
engine's `max_model_len`. One vector of (pool, bound) is read, whatever the fleet's size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def square_mean(buckets: Sequence[tuple[float, float]], mean: float) -> float | None:
    """E[L^2] in tokens squared; None where the buckets hold nothing.

    `buckets`: (upper bound, cumulative count or rate), any order, +Inf among them; `mean`: E[L]
    in tokens, exact, from sum and count. Within a bucket lengths are taken as log-uniform (that
    is geometric interpolation): E[L] = (b - a)/ln(b/a), E[L^2] = (b^2 - a^2)/(2 ln(b/a)). All
    lengths are then scaled so that the same interpolation gives `mean`. Buckets that fall
    are raised to the one below (B-047). Lengths beyond the last bound lie within twice of it.
    """
    first = second = total = 0.0
    below, filled = 1.0, 0.0
    for bound, cumulative in sorted(buckets):
        mass = max(0.0, cumulative - filled)
        bucket_mean, bucket_square = _log_uniform(below, bound)
        first, second, total = first + mass * bucket_mean, second + mass * bucket_square, total + mass
        below, filled = bound, max(filled, cumulative)
    if not (total > 0 and first > 0 and math.isfinite(second)):
        return None
    scale = mean * total / first
    return scale * scale * second / total


def falls(buckets: Sequence[tuple[float, float]]) -> bool:
    """Whether a cumulative count falls with a rising bound, beyond rounding."""
    counts = [count for _, count in sorted(buckets)]
    return any(high < low * (1 - 1e-9) for low, high in itertools.pairwise(counts))


def _log_uniform(low: float, high: float) -> tuple[float, float]:
    """First and second moment of a log-uniform length in (low, high]; no answer is shorter than a token."""
    if math.isinf(high):
        high = 2 * low
    if high <= low:
        return high, high * high
    width = math.log(high / low)
    return (high - low) / width, (high * high - low * low) / (2 * width)
