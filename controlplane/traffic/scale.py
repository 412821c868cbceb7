"""Which part of a trace is played, and how much of it: superposed shifted copies, nothing multiplied.

A copy is the whole trace, moved by a whole number of seconds and wrapped round at its period. Copy j
has the same shift whatever the number of copies, so more copies mean more load in every second and the
search for their number is a search along a monotone line. What remains below the wanted peak is filled
by one further copy of which a seeded share of whole requests is kept. Lengths stay as they are.

Load is counted in whole seconds, at arrival: a request's whole cost lands in the second it arrives in.
A *peak* is the largest mean load of any `peak_s` neighbouring seconds. Cost is in instance-seconds (then
load is in instances), in tokens or in requests; the caller's function says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from controlplane.traffic.trace import Floats, Ints, Trace

MAX_COPIES = 1000
LARGEST_FRACTION = 0.999999
"""Of a second: keeps a shifted arrival in its second where float rounding would lift it to the next."""

CostFn = Callable[[Trace], Floats]
"""What each request of a trace costs; float64 (n,), above 0."""


class ScaleError(ValueError):
    """The wanted peak cannot be reached with this trace."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A request's cost: `request + prompt*p + output*o + output_context*o*(p + o/2)`.

    With p prompt and o output tokens. This is the step-time model at a full batch B*: with
    `tau(B) = f*(d0 + B*(d1 + d2*ctx + p1*p/o))`, an answer takes `o * tau(B*) / B*` seconds of an
    instance, so `output = f*(d0/B* + d1)`, `output_context = f*d2`, `prompt = f*p1` (in seconds).
    """

    request: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    output_context: float = 0.0

    def __call__(self, trace: Trace) -> Floats:
        """Cost of each request, float64 (n,)."""
        p, o = trace.prompt_tokens.astype(np.float64), trace.output_tokens.astype(np.float64)
        return self.request + self.prompt * p + self.output * o + self.output_context * o * (p + o / 2)


REQUESTS = Cost(request=1.0)
TOKENS = Cost(prompt=1.0, output=1.0)


@dataclass(frozen=True, slots=True)
class Window:
    """The part to play: `for_s` seconds from `from_s` on, or around the busiest `peak_s` seconds.

    `from_s` counts from the trace's start. A window longer than the trace repeats it.
    """

    for_s: float
    from_s: int | None = None
    peak_s: int = 60

    @property
    def seconds(self) -> int:
        """Whole seconds that the window touches."""
        return math.ceil(self.for_s)


@dataclass(frozen=True, slots=True)
class Target:
    """A wanted peak: `share` of `capacity`, in `cost_fn`'s unit per second.

    With cost in instance-seconds, `capacity` is the number of instances.
    """

    cost_fn: CostFn
    capacity: float
    share: float = 0.85

    @property
    def peak(self) -> float:
        """The peak itself."""
        return self.share * self.capacity


@dataclass(frozen=True, slots=True)
class Played:
    """What is played, and how it came about.

    `trace` starts at 0. `copies` whole ones, and one more of which the share `thinned` is kept (0: no
    such copy). `start_s` in the trace; `peak` in the cost's unit per second, `target` likewise, None
    where none was asked for. `repeats`: how often the window runs through the trace (1: at most once).
    """

    trace: Trace
    copies: int
    thinned: float
    start_s: int
    peak: float
    target: float | None
    repeats: int


@dataclass(frozen=True, slots=True)
class _Copies:
    """A trace, and what is needed to lay copies of it over each other."""

    trace: Trace
    cost: Floats
    shifts: Ints
    luck: Floats  # (n,) in 0..1: a request is in a thinned copy where its luck is below the share

    @classmethod
    def of(cls, trace: Trace, cost_fn: CostFn, seed: int) -> _Copies:
        random = np.random.default_rng(seed)
        shifts = random.integers(0, trace.period_s, MAX_COPIES + 1)
        shifts[0] = 0
        return cls(trace, cost_fn(trace), shifts, random.random(len(trace)))

    def load(self, copy: int, share: float = 1.0) -> Floats:
        """Load of one copy in each second of the period, (period,)."""
        kept = self.luck < share
        second = self.trace.arrival_s[kept].astype(np.int64)
        load = np.bincount(second, self.cost[kept], minlength=self.trace.period_s)
        return np.roll(load, self.shifts[copy])

    def arrivals(self, window: Window, start_s: int, copy: int, share: float) -> Trace:
        """One copy's requests in the window, arrivals from the window's start."""
        kept = self.trace.take(self.luck < share)
        period = self.trace.period_s
        second = kept.arrival_s.astype(np.int64)
        fraction = np.minimum(kept.arrival_s - second, LARGEST_FRACTION)
        once = (second + self.shifts[copy] - start_s) % period + fraction
        rounds = [_at(kept, once + lap * period) for lap in range(_laps(window, period))]
        whole = _joined(rounds)
        return whole.take(whole.arrival_s < window.for_s)


def peak_offered(trace: Trace, window_s: int = 60, cost_fn: CostFn = REQUESTS) -> float:
    """The trace's peak, in the cost's unit per second. After its last arrival there is no load."""
    load = load_by_second(trace, cost_fn)
    silence = np.zeros(max(0, window_s - load.size))
    return float(_moving_mean(np.concatenate([load, silence]), window_s).max())


def load_by_second(trace: Trace, cost_fn: CostFn = REQUESTS) -> Floats:
    """Load that arrives in each second of the trace's period, float64 (period,)."""
    second = trace.arrival_s.astype(np.int64)
    return np.bincount(second, cost_fn(trace), trace.period_s).astype(np.float64)


def scaled(
    trace: Trace, window: Window, copies: float = 1.0, *, cost_fn: CostFn = REQUESTS, seed: int = 0
) -> Played:
    """`copies` of the trace, 0 < copies <= 1000; the part after the point is a thinned copy."""
    if not 0 < copies <= MAX_COPIES:
        raise ScaleError(f"{copies:g} copies; allowed: above 0, up to {MAX_COPIES}")
    _check(window, trace)
    whole = int(copies)
    return _lay(_Copies.of(trace, cost_fn, seed), window, whole, copies - whole, None)


def scale_to(trace: Trace, window: Window, target: Target, *, seed: int = 0) -> Played:
    """As many copies as keep the window's peak at or below `target`, and close to it.

    Raises ScaleError where one request is already too much, or `MAX_COPIES` copies too little.
    """
    _check(window, trace)
    if not 0 < target.peak < math.inf:
        raise ScaleError(f"a wanted peak of {target.peak:g}; allowed: above 0")
    copies = _Copies.of(trace, target.cost_fn, seed)
    whole, load = _whole_copies(copies, window, target.peak)
    return _lay(copies, window, whole, _thinned(copies, window, target.peak, whole, load), target.peak)


def clip(trace: Trace, max_context: int) -> tuple[Trace, int]:
    """The trace with prompt + output at most `max_context` tokens, and how many requests that changed.

    The prompt gives way first, as an engine that keeps its answers' length would cut it.
    """
    if max_context < 2:
        raise ScaleError(f"a context of {max_context} tokens; allowed: 2 or more")
    output = np.minimum(trace.output_tokens, max_context - 1)
    prompt = np.minimum(trace.prompt_tokens, max_context - output)
    changed = (output != trace.output_tokens) | (prompt != trace.prompt_tokens)
    return replace(trace, prompt_tokens=prompt, output_tokens=output), int(changed.sum())


def jittered(trace: Trace, width_s: float, seed: int = 0) -> Trace:
    """Arrivals moved by uniform(0, `width_s`): for a trace whose clock ticks every `width_s`."""
    moved = trace.arrival_s + np.random.default_rng(seed).uniform(0.0, width_s, len(trace))
    return _sorted(_at(trace, moved))


# -- the search ------------------------------------------------------------------------------------


def _whole_copies(copies: _Copies, window: Window, target: float) -> tuple[int, Floats]:
    """The most whole copies within `target`, and their load."""
    load = np.zeros(copies.trace.period_s)
    for count in range(MAX_COPIES + 1):
        more = load + copies.load(count)
        if _peak(more, window) > target:
            return count, load
        load = more
    raise ScaleError(
        f"{MAX_COPIES} copies peak at {_peak(load, window):g}, below the wanted {target:g}; "
        "allowed: a busier trace or a smaller capacity"
    )


def _thinned(copies: _Copies, window: Window, target: float, whole: int, load: Floats) -> float:
    """The largest share of one more copy within `target`, to a thousandth, by bisection."""
    low, high = 0, 1000
    while high - low > 1:
        middle = (low + high) // 2
        fits = _peak(load + copies.load(whole, middle / 1000), window) <= target
        low, high = (middle, high) if fits else (low, middle)
    return low / 1000


def _lay(copies: _Copies, window: Window, whole: int, thinned: float, target: float | None) -> Played:
    shares = [1.0] * whole + ([thinned] if thinned else [])
    load = np.sum([copies.load(copy, share) for copy, share in enumerate(shares)], axis=0, initial=0.0)
    start_s = _start(load, window) if shares else 0
    parts = [copies.arrivals(window, start_s, copy, share) for copy, share in enumerate(shares)]
    trace = _sorted(_joined(parts)) if parts else copies.trace.take(np.array([], dtype=np.intp))
    if len(trace) == 0:
        wanted = "" if target is None else f" within a peak of {target:g}"
        raise ScaleError(
            f"no request{wanted} in a window of {window.for_s:g} s; allowed: a longer or larger one"
        )
    laps = _laps(window, copies.trace.period_s)
    return Played(trace, whole, thinned, start_s, _peak(load, window), target, laps)


# -- windows ---------------------------------------------------------------------------------------


def _check(window: Window, trace: Trace) -> None:
    if window.from_s is not None and not 0 <= window.from_s < trace.period_s:
        raise ScaleError(f"from second {window.from_s}; allowed: 0 to {trace.period_s - 1}, within the trace")
    if not 1 <= window.peak_s <= window.for_s:
        raise ScaleError(f"a peak over {window.peak_s} s; allowed: 1 to the window's {window.for_s:g} s")


def _peak(load: Floats, window: Window) -> float:
    """Peak of what is played. Without `from_s` that is the trace's own, for the window follows it."""
    if window.from_s is None and window.seconds < load.size:
        return float(_moving_mean(load, window.peak_s).max())
    seconds = (np.arange(window.seconds) + (window.from_s or 0)) % load.size
    return float(_moving_mean(load[seconds], window.peak_s).max())


def _start(load: Floats, window: Window) -> int:
    """`from_s`, or where the busiest `peak_s` seconds come to lie in the window's middle."""
    if window.from_s is not None:
        return window.from_s % load.size
    if window.seconds >= load.size:
        return 0
    busiest = int(_moving_mean(load, window.peak_s).argmax())
    middle = busiest + (window.peak_s - window.seconds) // 2
    return min(max(middle, 0), load.size - window.seconds)


def _moving_mean(load: Floats, seconds: int) -> Floats:
    width = min(seconds, load.size)
    total: Floats = np.concatenate([[0.0], np.cumsum(load)])
    return np.asarray((total[width:] - total[:-width]) / width, dtype=np.float64)


def _laps(window: Window, period: int) -> int:
    return math.ceil(window.seconds / period)


# -- traces ----------------------------------------------------------------------------------------


def _at(trace: Trace, arrival_s: Floats) -> Trace:
    return replace(trace, arrival_s=arrival_s)


def _joined(parts: list[Trace]) -> Trace:
    return Trace(
        np.concatenate([part.arrival_s for part in parts]),
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
    )


def _sorted(trace: Trace) -> Trace:
    return trace.take(np.argsort(trace.arrival_s, kind="stable"))
