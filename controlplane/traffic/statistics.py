"""What a trace looks like, in the figures by which traces are published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from controlplane.traffic.scale import load_by_second, peak_offered
from controlplane.traffic.trace import Ints, Trace

BARS = "▁▂▃▄▅▆▇█"
DAY_BARS = 72


class TokenQuantiles(TypedDict):
    """Tokens, by nearest rank; `mean` beside them."""

    p50: int
    p95: int
    p99: int
    longest: int
    mean: float


class Description(TypedDict):
    """Rates in requests/s. `gap_cv`: standard deviation of the gaps over their mean; None below 2 gaps."""

    requests: int
    period_s: int
    mean_rate: float
    peak_minute_rate: float
    gap_cv: float | None
    prompt_tokens: TokenQuantiles
    output_tokens: TokenQuantiles


def describe(trace: Trace) -> Description:
    """The trace's figures."""
    return {
        "requests": len(trace),
        "period_s": trace.period_s,
        "mean_rate": len(trace) / trace.period_s,
        "peak_minute_rate": peak_offered(trace, 60),
        "gap_cv": _gap_cv(trace),
        "prompt_tokens": _quantiles(trace.prompt_tokens),
        "output_tokens": _quantiles(trace.output_tokens),
    }


def sparkline(trace: Trace, width: int = 60) -> str:
    """Requests over time in at most `width` bars, from no requests to the busiest bar's."""
    load = load_by_second(trace)
    sums = np.array([part.mean() for part in np.array_split(load, min(width, load.size))])
    return "".join(BARS[level] for level in _levels(sums))


def drawn_day(traces: Mapping[str, Trace]) -> str:
    """Each trace's name, mean and busiest rates, and its course: a day long, however long it is, with a bar
    for twenty minutes, from no requests to its own busiest. The hours stand below."""
    lines = [f"{name}: {_rates(trace)}\n{sparkline(trace, DAY_BARS)}" for name, trace in traces.items()]
    hours = "".join(f"{hour:02}:00".ljust(DAY_BARS // 4) for hour in range(0, 24, 6))
    return "\n".join([*lines, f"{hours}24:00"])


def _rates(trace: Trace) -> str:
    return (
        f"{len(trace) / trace.period_s:.2f} requests/s, {peak_offered(trace, 60):.2f} in the busiest minute"
    )


def _levels(sums: npt.NDArray[np.float64]) -> list[int]:
    levels: list[int] = np.rint(sums / sums.max() * (len(BARS) - 1)).astype(int).tolist()
    return levels


def _gap_cv(trace: Trace) -> float | None:
    gaps = np.diff(trace.arrival_s)
    return float(gaps.std() / gaps.mean()) if gaps.size >= 2 and gaps.mean() > 0 else None


def _quantiles(tokens: Ints) -> TokenQuantiles:
    p50, p95, p99, longest = np.percentile(tokens, [50, 95, 99, 100], method="inverted_cdf").tolist()
    return {"p50": p50, "p95": p95, "p99": p99, "longest": longest, "mean": float(tokens.mean())}
