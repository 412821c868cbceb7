"""How the rate of seeded traffic moves over its length: a swing, a whole day, on and off.

A course gives the rate relative to its own mean, at instants from 0 (the beginning) to 1 (the end). A day is
a day at any length: played in ten minutes it has the same curve, and everything comes 144 times sooner.

Sources:

- night to noon 20 times: between ServeGen's eight tenants (arXiv 2505.09999: 18 in bins of ten minutes) and
  the Azure code service's week (May 2024: 28 in bins of an hour). The curve between is a sine of the
  logarithm, so that the fall is as steep as the rise; lowest at midnight, highest at noon.
- the flash crowd: ServeGen's tenant 57 rises from 0.01 to 19.8 requests/s within 20 minutes. How fast it
  leaves is an assumption: by half in 20 minutes more.
- on and off: as ServeGen's tenant 61 (batch work). How often is an assumption: six times a day, a quarter
  of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from controlplane.traffic.trace import Floats

Course = Callable[[Floats], Floats]

DAY_SWING = 20.0
DAY_MINUTES = 24 * 60
FLASH_AT, FLASH_RISE, FLASH_HALF_LIFE = 18 * 60 / DAY_MINUTES, 20 / DAY_MINUTES, 20 / DAY_MINUTES
FLASH_HEIGHT = 1.0
"""By how much the flash crowd adds to the day, as a share of the day's peak. It begins at 18:00."""

BURSTS, ON_SHARE = 6, 0.25


def swing(depth: float) -> Course:
    """One period of `1 + depth * sin`, lowest at both ends and highest in the middle. `depth` in 0..1."""
    return lambda at: 1.0 + depth * (2.0 * np.sin(np.pi * at) ** 2 - 1.0)


SLOW_SWING = swing(0.3)


def steady(at: Floats) -> Floats:
    """The same from the first moment to the last: a crowd that is there at once."""
    return np.ones_like(at)


def day(at: Floats) -> Floats:
    """A day with a flash crowd in its evening."""
    return diurnal(at) + FLASH_HEIGHT * flash(at)


def diurnal(at: Floats) -> Floats:
    """Peak 1, trough `1 / DAY_SWING`."""
    return np.exp(-math.log(DAY_SWING) * (1.0 + np.cos(2.0 * np.pi * at)) / 2.0)


def flash(at: Floats) -> Floats:
    """0, then up in a straight line within `FLASH_RISE` to 1, then half of it every `FLASH_HALF_LIFE`."""
    since = at - FLASH_AT
    rising = np.clip(since / FLASH_RISE, 0.0, 1.0)
    return rising * np.exp2(-np.maximum(since - FLASH_RISE, 0.0) / FLASH_HALF_LIFE)


def on_off(at: Floats) -> Floats:
    """`BURSTS` times a day all of it, for `ON_SHARE` of the time, and nothing between."""
    return np.where((at * BURSTS) % 1.0 < ON_SHARE, 1.0, 0.0)
