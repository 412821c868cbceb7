"""Rounding, so that equal decisions are equal on every processor."""

from __future__ import annotations

import math

SIGNIFICANT_DIGITS = 6


def significant(value: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """Round to `digits` significant digits; NaN and infinities pass through.

    float64 `exp` and `log` differ in the last bit between processors, so a number
    is rounded before it is compared, stored as a reason or pushed.
    """
    if value == 0.0 or not math.isfinite(value):
        return value
    return float(f"{value:.{digits - 1}e}")
