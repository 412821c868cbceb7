"""Offered load of a pool, in instances: how many full instances its traffic would fill.

Design: largest of what leaves, what arrives, and what explains the requests in service. Each is
bounded from both sides where instances are unseen: the lower bound may grow the pool, the upper
one alone may shrink it, so a missing reading can never flip a decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from controlplane.domain.policy import Routing
from controlplane.domain.profile import Profile, largest_concurrency, slope_ms, tokens_per_second
from controlplane.domain.readings import Bools, Column, Floats, Known, PoolSignal, Reading, Signal
from controlplane.domain.view import PoolView

DRAIN_S = 30.0
"""Seconds within which a backlog should be worked off."""

RETRY_AFTER_S = 5.0
"""How long our gateways ask a refused caller to wait before it comes again, seconds."""

CHANCE = 2.0
"""Standard deviations by which a few seconds' arrivals may differ from their mean by chance."""

SPEED_RANGE = (0.25, 2.0)
"""What a measured speed may say of the profile: beyond this the measurement is wrong, not the card."""

SMALL_POOL = 0.27
"""Measured: n instances hold 1 - 0.27/sqrt(n) of what they could before nearly all requests miss."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One way to tell the load, in instances. `upper` is None where signals are missing."""

    lower: float
    upper: float | None


@dataclass(frozen=True, slots=True)
class Load:
    """The load and how it came about.

    `lower`: what the evidence proves; `upper`: what it could be, None where that cannot be told.
    `sustained`: what is proven without the backlog, which is gone once it is worked off.
    `concurrency`: B*, `tokens_per_instance`: tokens a second of one instance at B*, both at the
    pool's own measured `speed` relative to the profile.
    """

    lower: float
    upper: float | None
    sustained: float
    leaving: Estimate
    arriving: Estimate
    in_service: Estimate
    concurrency: int
    tokens_per_instance: float
    speed: float


def offered_load(view: PoolView) -> Load:
    """The largest of the three estimates, or exactly 0 where the pool is proven idle."""
    speed = pool_speed(view)
    profile = replace(view.profile, f=view.profile.f / speed)
    slo = view.policy.slo
    concurrency = largest_concurrency(profile, view.mix.mix, slo.tpot_p95_s * 1e3, slo.ttft_p95_s * 1e3)
    rate = tokens_per_second(profile, view.mix.mix, concurrency)
    backlog = _backlog(view, rate)
    estimates = (_leaving(view, rate, backlog), _arriving(view, rate), _in_service(view, profile, rate))
    uppers = [each.upper for each in estimates]
    known = [upper for upper in uppers if upper is not None]
    idle = proven_idle(view)
    complete = len(known) == len(uppers) and view.mix.source != "neutral"
    return Load(
        lower=0.0 if idle else max(each.lower for each in estimates),
        upper=0.0 if idle else (max(known) if complete else None),
        sustained=0.0 if idle else max(estimates[0].lower - backlog, *(each.lower for each in estimates[1:])),
        leaving=estimates[0],
        arriving=estimates[1],
        in_service=estimates[2],
        concurrency=concurrency,
        tokens_per_instance=rate,
        speed=speed,
    )


def present_need(load: float, target_utilisation: float) -> int:
    """Fewest n with load/n <= min(target utilisation, 1 - 0.27/sqrt(n)); 0 for no load at all.

    The target is the operator's; the second bound is measured (design, section 6): small pools
    have less room for chance. Beyond n = (load + 1) / target + 2 the bound cannot bind any more.
    """
    if load <= 0.0:
        return 0
    need = max(1, math.ceil(load / target_utilisation - 1e-9))
    while load / need > max(1.0 - SMALL_POOL / math.sqrt(need), 0.5):
        need += 1
    return need


def speeds(view: PoolView) -> tuple[Floats, Bools]:
    """speed_abs of each instance and where it is believed: profile's step time at the instance's
    own measured concurrency by its measured step time. NaN where not believed."""
    running, step = view.column(Signal.RUNNING_MEAN), view.column(Signal.STEP_TIME)
    enough = running.ok & (np.nan_to_num(running.value) >= view.policy.weights.min_running)
    believed = enough & step.ok & (np.nan_to_num(step.value) > 0.0)
    mix = view.mix.mix
    modelled_ms = view.profile.f * (view.profile.d0_ms + running.value * slope_ms(view.profile, mix))
    measured_ms = np.where(believed, step.value * 1000.0, np.nan)
    return modelled_ms / measured_ms, believed


def pool_speed(view: PoolView) -> float:
    """Mean believed speed of the instances that take traffic, each within `SPEED_RANGE`; 1 if none."""
    speed, believed = speeds(view)
    chosen = speed[believed & view.traffic_rows]
    return float(np.mean(np.clip(chosen, *SPEED_RANGE))) if chosen.size else 1.0


def proven_idle(view: PoolView) -> bool:
    """Whether it is known, and not merely unseen, that nobody asks for anything."""
    quiet = [view.reading(signal) for signal in (PoolSignal.ARRIVALS, PoolSignal.GATEWAY_QUEUE)]
    if not all(isinstance(each, Known) and each.value == 0.0 for each in quiet):
        return False
    rows = view.traffic_rows
    columns = (view.column(Signal.RUNNING), view.column(Signal.WAITING))
    return all(bool(np.all(column.ok[rows])) and not np.any(column.value[rows]) for column in columns)


def _backlog(view: PoolView, rate: float) -> float:
    """What waits, at the gateway and in the engines, in instances that work it off within `DRAIN_S`."""
    waiting = _known_sum(view.column(Signal.WAITING), view.traffic_rows) + _queue(view)
    return waiting * view.mix.mix.output_mean / DRAIN_S / rate


def _leaving(view: PoolView, rate: float, backlog: float) -> Estimate:
    """What leaves, and the backlog. Lags by a service time."""
    tokens = view.column(Signal.GENERATION_TOKENS)
    summed = _summed(view, tokens.value / rate, tokens.ok)
    needed = view.covered(Signal.GENERATION_TOKENS) and view.covered(Signal.WAITING) and _queue_known(view)
    return Estimate(summed.lower + backlog, (summed.upper or 0.0) + backlog if needed else None)


def _arriving(view: PoolView, rate: float) -> Estimate:
    """Arrivals times mean output; nothing per instance in it.

    Over the window, and over the last four scrapes, which see a flash crowd in its first sample. Of the
    latter only what chance does not explain: it may make a pool grow, and never keeps it from shrinking.
    """
    arrivals = view.reading(PoolSignal.ARRIVALS)
    each = view.mix.mix.output_mean / rate
    at_once = _callers(_beyond_chance(view), view.reading(PoolSignal.REFUSALS_NOW)) * each
    if not isinstance(arrivals, Known):
        return Estimate(at_once, 0.0 if view.policy.routing is Routing.EXTERNAL else None)
    lower = _callers(arrivals.value, view.reading(PoolSignal.REFUSALS)) * each
    return Estimate(max(lower, at_once), max(arrivals.value * each, at_once))


def _callers(arrivals: float, refusals: Reading) -> float:
    """Callers a second. A refused one comes again and is counted again, once every `RETRY_AFTER_S`: what
    is proven is that many callers who wait outside, a backlog like that inside. At most each was a new one.
    """
    refused = min(refusals.value, arrivals) if isinstance(refusals, Known) else 0.0
    return arrivals - refused + refused * RETRY_AFTER_S / DRAIN_S


def _beyond_chance(view: PoolView) -> float:
    """Least arrivals a second that explain those of the last four scrapes: n independent callers scatter
    by sqrt(n) (Poisson), so n - 2 sqrt(n), which chance alone exceeds once in 40 samples, and then by little.
    """
    arrivals = view.reading(PoolSignal.ARRIVALS_NOW)
    if not isinstance(arrivals, Known):
        return 0.0
    count = arrivals.value * view.four_scrapes_s
    return max(0.0, count - CHANCE * math.sqrt(count)) / view.four_scrapes_s


def _in_service(view: PoolView, profile: Profile, rate: float) -> Estimate:
    """What explains the requests in service: tokens a second that the step model gives at the
    measured running count. The profile's scale cancels, which guards against a wrong one."""
    gauge, mean = view.column(Signal.RUNNING), view.column(Signal.RUNNING_MEAN)
    running = np.where(mean.ok, mean.value, gauge.value)
    step_s = profile.f * (profile.d0_ms + running * slope_ms(profile, view.mix.mix)) / 1000.0
    summed = _summed(view, running / step_s / rate, mean.ok | gauge.ok)
    return summed if view.covered(Signal.RUNNING) else Estimate(summed.lower, None)


def _summed(view: PoolView, fill: Floats, known: Bools) -> Estimate:
    """Sum of `fill` over what takes traffic. An unseen instance counts as idle below, and above as
    full, or as the fullest seen one if that is more than full."""
    seen = fill[known & view.traffic_rows]
    unseen = int(np.count_nonzero(view.traffic_rows & ~known))
    lower = float(np.sum(seen))
    fullest = float(np.max(seen)) if seen.size else 0.0
    return Estimate(lower, lower + unseen * max(fullest, 1.0))


def _known_sum(column: Column, rows: Bools) -> float:
    return float(np.sum(column.value[column.ok & rows]))


def _queue(view: PoolView) -> float:
    queue = view.reading(PoolSignal.GATEWAY_QUEUE)
    return queue.value if isinstance(queue, Known) else 0.0


def _queue_known(view: PoolView) -> bool:
    return view.policy.routing is Routing.EXTERNAL or isinstance(
        view.reading(PoolSignal.GATEWAY_QUEUE), Known
    )
