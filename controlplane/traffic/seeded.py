"""Seeded traces drawn from published statistics: what is played where no trace is at hand.

Lengths are lognormal, fitted to published quantiles, and cut at the published maximum; prompt and
output are drawn independently (their correlation in the Azure rows is -0.11). Arrivals are a Gamma
renewal process, whose gaps have the coefficient of variation `cv`, run through the course of the rate
(`course.py`): a slow swing, a whole day with a flash crowd, or batch work that comes and goes.

Sources, by shape:

- `chat`: Azure, conversation, 16 Nov 2023 (AzurePublicDataset; Splitwise, ISCA 2024): 5.53 requests/s,
  CV 1.09, prompt P50/P95/P99 1020/4083/4142, output 129/451/601 (longest 1000).
- `code`: Azure, code, May 2024 (AzurePublicDataset): prompt 1911/7653/7720, output 8/79/270. Its CV of
  2.98 over a week is mostly the day's swing; the short-term CV here is `chat`'s.
- `mixed`: ServeGen (arXiv 2505.09999), eight tenants over a day: prompt 483/1208/2781, output 10/571/941.
- `day`: `chat`'s lengths over a day that swings 20 times, with a flash crowd at 18:00.
- `batch`: `code`'s lengths, six times a day for an hour, and nothing between.
- `reason`: ServeGen, deepseek-r1: mean prompt 1268, mean output 1527. Only means are published; the
  spread (sigma 0.8) is an assumption.

A lognormal has two parameters and the published quantiles three: `quantile_error` says how far it is
off, and a test bounds it. It is a stand-in for a trace, not a trace; a report names it `seeded`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from controlplane.traffic.course import SLOW_SWING, Course, day, on_off
from controlplane.traffic.trace import Floats, Ints, Trace

_Z95, _Z99 = 1.6449, 2.3263
MOST = 1e8
"""Requests in one seeded trace, at most: some 3 GiB."""

_GRID = 8641  # of a day: ten seconds


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens, lognormal: `median`, `sigma` of the logarithm, never above `longest`."""

    median: float
    sigma: float
    longest: int

    @classmethod
    def fitted(cls, p50: float, p95: float, p99: float, longest: int) -> Lengths:
        """The lognormal through the median whose logarithm is closest, by least squares, to P95 and P99.

        Where P99 lies at `longest`, it says only where the service cut, and P95 alone is fitted.
        """
        y95, y99 = math.log(p95 / p50), math.log(p99 / p50)
        if p99 >= longest:
            return cls(p50, y95 / _Z95, longest)
        return cls(p50, (_Z95 * y95 + _Z99 * y99) / (_Z95**2 + _Z99**2), longest)

    @classmethod
    def of_mean(cls, mean: float, sigma: float, longest: int) -> Lengths:
        """By the mean of an uncut lognormal, `median * exp(sigma^2 / 2)`."""
        return cls(mean / math.exp(sigma**2 / 2), sigma, longest)

    def quantile_error(self, z: float, published: float) -> float:
        """Relative error of the quantile at standard normal `z` against the published one."""
        return min(self.median * math.exp(self.sigma * z), self.longest) / published - 1.0

    def draw(self, random: np.random.Generator, n: int) -> Ints:
        """`n` lengths, each from 1 to `longest`."""
        drawn = self.median * np.exp(self.sigma * random.standard_normal(n))
        return np.clip(np.rint(drawn), 1, self.longest).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of traffic. `rate` in requests/s, mean over the trace; `course`: how it moves over it."""

    prompt: Lengths
    output: Lengths
    rate: float = 5.53
    cv: float = 1.09
    course: Course = SLOW_SWING


_CHAT = Shape(Lengths.fitted(1020, 4083, 4142, 4142), Lengths.fitted(129, 451, 601, 1000))
_CODE = Shape(Lengths.fitted(1911, 7653, 7720, 7720), Lengths.fitted(8, 79, 270, 4879))

SHAPES: Mapping[str, Shape] = {
    "chat": _CHAT,
    "code": _CODE,
    "mixed": Shape(Lengths.fitted(483, 1208, 2781, 25_311), Lengths.fitted(10, 571, 941, 8192)),
    "reason": Shape(Lengths.of_mean(1268, 0.8, 32_768), Lengths.of_mean(1527, 0.8, 16_384)),
    "day": replace(_CHAT, course=day),
    "batch": replace(_CODE, course=on_off),
}


def seeded_trace(shape: Shape, seconds: float, seed: int, rate: float | None = None) -> Trace:
    """A trace of `seconds`, the same for the same arguments. At least one request.

    `rate` in requests/s replaces the shape's own. Raises ValueError where it draws no request.
    """
    expected = seconds * (shape.rate if rate is None else rate)
    if not expected <= MOST:
        raise ValueError(f"some {expected:.3g} requests in one trace; allowed: at most {MOST:.3g}")
    random = np.random.default_rng(seed)
    arrival = _arrivals(random, shape, seconds, shape.rate if rate is None else rate)
    if arrival.size == 0:
        raise ValueError(
            f"no request in {seconds:g} s at {rate or shape.rate:g} requests/s; allowed: more of both"
        )
    prompt, output = (part.draw(random, arrival.size) for part in (shape.prompt, shape.output))
    return Trace(arrival, prompt, output, seconds)


def _arrivals(random: np.random.Generator, shape: Shape, seconds: float, rate: float) -> Floats:
    """Gamma gaps of mean 1 in operational time, carried back through the inverse of the mean rate."""
    expected = seconds * rate
    n = math.ceil(expected + 10 * shape.cv * math.sqrt(expected) + 10)
    gaps = random.gamma(1 / shape.cv**2, shape.cv**2, n)
    at = np.linspace(0.0, 1.0, _GRID)
    middle = (at[1:] + at[:-1]) / 2.0
    relative = shape.course(middle)
    mean = np.concatenate([[0.0], np.cumsum(relative / relative.mean())]) * expected / middle.size
    operational = np.cumsum(gaps)
    # To the right of a plateau: nothing arrives while the rate is 0, not even at its very beginning.
    return _inverse(operational[operational < mean[-1]], mean, at * seconds)


def _inverse(wanted: Floats, mean: Floats, grid: Floats) -> Floats:
    """Where the cumulative `mean` passes each of `wanted`, in a straight line between grid points."""
    right = np.searchsorted(mean, wanted, side="right")
    low, high = mean[right - 1], mean[right]
    share = (wanted - low) / (high - low)
    return np.asarray(grid[right - 1] + share * (grid[right] - grid[right - 1]), dtype=np.float64)
