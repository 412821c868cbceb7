"""From what was read to what may be acted upon. Distrust has a cause, and is never a zero.

All functions work on one pool's rows, vectorised over its n instances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.policy import EvidencePolicy
from controlplane.domain.profile import Mix, Profile, tokens_per_second
from controlplane.domain.readings import (
    CAUSES,
    Bools,
    Cause,
    Column,
    Floats,
    Known,
    Missing,
    PoolSignal,
    Reading,
    Signal,
)
from controlplane.domain.state import PoolState, SeenCounters

FUTURE_TOLERANCE_S = 5.0
"""A sample this much ahead of the cycle's instant is a clock that disagrees, not a fresh reading."""

CEILING_FACTOR = 2.0
"""A token rate above this multiple of what the profile can generate is no measurement: a counter
that fell by a little looks like a reset, and its whole value like one window's growth."""

RUNNING_FACTOR = 4.0
"""A running count above this multiple of the profile's `max_num_seqs` is garbage."""

FROZEN_INTERVALS = 3
"""Scrapes within which a healthy engine shows movement after work reached it."""

DEFAULT_INTERVAL_S = 15.0
"""Scrape interval assumed where the source does not say its own."""

GPU_SIGNALS = frozenset(
    {
        Signal.GPU_UTILISATION,
        Signal.SM_ACTIVE,
        Signal.DRAM_ACTIVE,
        Signal.GPU_MEMORY,
        Signal.GPU_SPREAD,
        Signal.SM_CLOCK,
        Signal.GPU_TEMPERATURE,
        Signal.GPU_POWER,
        Signal.XID,
    }
)
"""Read from the GPU exporter, which a frozen engine does not touch."""

WINDOWED = frozenset(
    {
        Signal.RUNNING_MEAN,
        Signal.STEP_TIME,
        Signal.TTFT_P95,
        Signal.E2E_P95,
        Signal.COMPLETIONS,
        Signal.ERRORS,
        Signal.PREEMPTIONS,
        Signal.PROMPT_TOKENS,
        Signal.GENERATION_TOKENS,
        Signal.CPU,
    }
)
"""Figures over a window: one that reaches into a gap tells of the gap."""

WINDOWED_POOL = frozenset(PoolSignal) - {PoolSignal.GATEWAY_QUEUE, PoolSignal.GATEWAY_IN_FLIGHT}

ANSWERED = frozenset({Cause.NO_TRAFFIC, Cause.TOO_FEW})
"""Causes with which an instance did answer: it only had nothing to tell."""

NOT_OFFERED = frozenset({Cause.NOT_ASKED, Cause.NOT_EXPORTED})
"""Causes of a signal that nobody provides here: it has no opinion, for ever."""

_ANSWERED_CODES = np.array([CAUSES.index(cause) for cause in sorted(ANSWERED)], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Work:
    """What the gateways that answered count for each instance: requests in flight and ended
    (totals), and whether any gateway counts it at all. Arrays of length n."""

    in_flight: Floats
    completed: Floats
    counted: Bools


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the instances that should report do. `share` is 1 where none should."""

    seen: int
    expected: int

    @property
    def share(self) -> float:
        """Seen by expected, 0..1."""
        return self.seen / self.expected if self.expected else 1.0


def expected(instances: Sequence[Instance], now: float, settled_s: float) -> Bools:
    """Which instances should report: those that serve, and have for `settled_s` seconds.

    Loading, draining, unreachable and gone ones are silent by nature and never dilute the pool.
    """
    settled = [each.ready_at is None or now - each.ready_at >= settled_s for each in instances]
    serving = [each.phase is Phase.SERVING for each in instances]
    return np.array(serving, dtype=np.bool_) & np.array(settled, dtype=np.bool_)


def coverage(column: Column, should_report: Bools) -> Coverage:
    """How much of a signal is there, among those that should report it."""
    answered = column.ok | np.isin(column.cause, _ANSWERED_CODES)
    return Coverage(int(np.count_nonzero(answered & should_report)), int(np.count_nonzero(should_report)))


def fresh(column: Column, now: float, max_age_s: float) -> Column:
    """Without readings that are too old, from the future, or not finite."""
    age = now - column.sampled_at
    return (
        column.without(column.ok & ~np.isfinite(column.value), Cause.NOT_FINITE)
        .without(column.ok & (age > max_age_s), Cause.STALE)
        .without(column.ok & (age < -FUTURE_TOLERANCE_S), Cause.CLOCK_SKEW)
    )


def gap_ends(state: PoolState, now: float, evidence: EvidencePolicy) -> bool:
    """Whether sight that comes back now ends a gap: nothing was seen for longer than a sample may
    be old. A query or two that got no answer leave the windows whole."""
    return state.blind > 0 and (state.seen_at is None or now - state.seen_at > evidence.max_age_s)


def in_gap(state: PoolState, now: float, evidence: EvidencePolicy) -> bool:
    """Whether a window that ends now reaches back into a gap."""
    recent = state.gap_ended_at is not None and now - state.gap_ended_at < evidence.window_s
    return recent or gap_ends(state, now, evidence)


def suspects(
    progress: Column,
    running: Column,
    work: Work,
    remembered: Mapping[int, SeenCounters],
    now: float,
) -> dict[int, SeenCounters]:
    """The next standing-still evidence, by row. `remembered`: the last one, by row.

    Standing still is progress of exactly 0; what makes it suspicious is work: requests in
    flight at a gateway, requests that ended there meanwhile, or the engine's own running count.
    An instance that cannot be seen keeps its evidence.
    """
    still = progress.ok & (progress.value == 0.0)
    held = {row: seen for row, seen in remembered.items() if not progress.ok[row]}
    busy = (work.in_flight > 0.0) | (running.ok & (running.value > 0.0))
    for row in np.flatnonzero(still).tolist():
        held[row] = _still(remembered.get(row), int(work.completed[row]), busy=bool(busy[row]), now=now)
    return held


def _still(before: SeenCounters | None, completed: int, *, busy: bool, now: float) -> SeenCounters:
    if before is None:
        return SeenCounters(now, completed)
    if busy or completed > before.completed_total:
        return before
    return SeenCounters(now, completed)


def frozen(evidence: Mapping[int, SeenCounters], now: float, interval_s: float | None, count: int) -> Bools:
    """Rows whose answer has stood still for longer than a healthy engine could, work at hand."""
    patience = FROZEN_INTERVALS * (interval_s or DEFAULT_INTERVAL_S)
    verdict = np.zeros(count, dtype=np.bool_)
    rows = [row for row, seen in evidence.items() if now - seen.since >= patience]
    verdict[rows] = True
    return verdict


def within_physics(signal: Signal, column: Column, profile: Profile, mix: Mix) -> Column:
    """Without readings that no instance of this profile can produce."""
    if signal is Signal.GENERATION_TOKENS:
        ceiling = CEILING_FACTOR * tokens_per_second(profile, mix, profile.max_num_seqs)
        return _between(column, 0.0, ceiling)
    if signal in {Signal.RUNNING, Signal.RUNNING_MEAN}:
        return _between(column, 0.0, RUNNING_FACTOR * profile.max_num_seqs)
    if signal in {Signal.SM_ACTIVE, Signal.DRAM_ACTIVE, Signal.GPU_UTILISATION, Signal.KV_CACHE}:
        return _between(column, 0.0, 1.0)
    return _between(column, 0.0, np.inf) if signal is not Signal.XID else column


def _between(column: Column, low: float, high: float) -> Column:
    outside = column.ok & ((column.value < low) | (column.value > high))
    return column.without(outside, Cause.OUT_OF_RANGE)


def trusted_reading(
    signal: PoolSignal, reading: Reading, now: float, evidence: EvidencePolicy, *, gap: bool
) -> Reading:
    """A pool's reading, or why it may not be used."""
    if isinstance(reading, Missing):
        return reading
    value, age = reading.value, now - reading.sampled_at
    doubts = (
        (not math.isfinite(value), Cause.NOT_FINITE, "not a finite number"),
        (value < 0.0, Cause.OUT_OF_RANGE, f"{value:g} is below 0"),
        (age > evidence.max_age_s, Cause.STALE, f"{age:.0f} s old"),
        (age < -FUTURE_TOLERANCE_S, Cause.CLOCK_SKEW, f"{-age:.0f} s ahead"),
        (gap and signal in WINDOWED_POOL, Cause.WINDOW_TOO_SHORT, "the window reaches into a gap"),
    )
    return next((Missing(cause, detail) for doubted, cause, detail in doubts if doubted), reading)


def four_scrapes(interval_s: float | None) -> float:
    """The shortest window that a rate is computed over, seconds."""
    return 4.0 * (interval_s or DEFAULT_INTERVAL_S)


def conserved_arrivals(
    readings: Mapping[PoolSignal, Reading],
    interval_s: float | None,
    came: PoolSignal = PoolSignal.ARRIVALS,
    refused: PoolSignal = PoolSignal.REFUSALS,
) -> Reading:
    """Arrivals, unless more came than can be accounted for.

    What arrived within the window has ended, was refused, was given up, or is still there:
    a rate above twice that sum (and one request a second) is a counter's false reset. The
    window is taken as the shortest that rates are ever computed over, four scrapes: a flash
    crowd, of which everything is still there, must never be mistaken for a reset.
    """
    window_s = four_scrapes(interval_s)
    arrivals = readings.get(came, Missing(Cause.NOT_ASKED))
    figures = [readings.get(signal) for signal in (refused, *_CONSERVED)]
    if not isinstance(arrivals, Known) or not all(isinstance(each, Known) for each in figures):
        return arrivals
    refusals, completions, queue, in_flight, given_up = (
        each.value for each in figures if isinstance(each, Known)
    )
    ended = completions / max(1.0 - given_up, 0.05)
    accounted = ended + refusals + (queue + in_flight) / window_s
    if arrivals.value > CEILING_FACTOR * accounted + 1.0:
        return Missing(Cause.OUT_OF_RANGE, f"{arrivals.value:.3g}/s came, {accounted:.3g}/s accounted for")
    return arrivals


_CONSERVED = (
    PoolSignal.COMPLETIONS,
    PoolSignal.GATEWAY_QUEUE,
    PoolSignal.GATEWAY_IN_FLIGHT,
    PoolSignal.CANCELLED_RATIO,
)
