"""Results as figures for a report. Pure: results in, plain JSON values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from controlplane.traffic.results import Outcome, Result

SHOWN_ERRORS = 10


class Quantiles(TypedDict):
    """Seconds, each a value that really occurred (nearest rank); None where `n` is 0."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


class Latency(TypedDict):
    """Of requests that ended `ok`: the others have no complete answer. Read the counts beside it."""

    total_s: Quantiles
    ttft_s: Quantiles


class Counts(TypedDict):
    """Each request once: `sent` is the sum of `ok` to `unfinished`. `faulted` failed by an ordered fault.

    `retried` counts attempts, not requests: those that a client gave up and made again. None of them is in
    the other counts, whatever it broke by.
    """

    sent: int
    ok: int
    refused: int
    failed: int
    faulted: int
    unfinished: int
    retried: int


class PhaseReport(TypedDict):
    """One phase's figures."""

    requests: Counts
    latency: Latency


@dataclass(frozen=True, slots=True)
class Phase:
    """A named part of a play, from `from_at` up to but without `to_at`, epoch seconds."""

    name: str
    from_at: float
    to_at: float


@dataclass(frozen=True, slots=True)
class OrderedFault:
    """A fault somebody ordered: on which slot, from when to when (None: it still lasts), epoch seconds.

    `model`: the served name, which tells whose requests it may have broken where an answer names nobody.
    """

    slot: str
    from_at: float
    to_at: float | None = None
    model: str | None = None


def quantiles(values: Iterable[float]) -> Quantiles:
    """P50, P95, P99 by nearest rank."""
    ordered = np.sort(np.fromiter(values, dtype=np.float64))
    if ordered.size == 0:
        return {"n": 0, "p50": None, "p95": None, "p99": None}
    p50, p95, p99 = np.percentile(ordered, [50, 95, 99], method="inverted_cdf").tolist()
    return {"n": int(ordered.size), "p50": p50, "p95": p95, "p99": p99}


def latency(results: Sequence[Result]) -> Latency:
    """Latency of what ended `ok`, from the moment it was first sent."""
    good = [result for result in results if result.outcome is Outcome.OK]
    return {
        "total_s": quantiles(result.total_s for result in good),
        "ttft_s": quantiles(result.ttft_s for result in good if result.ttft_s is not None),
    }


def counts(
    results: Sequence[Result], faults: Sequence[OrderedFault] = (), broken: int | None = None
) -> Counts:
    """Requests by outcome, with those that an ordered fault broke taken out of `failed`.

    A failure whose answer names the faulty slot is the fault's. One that names nobody and overlaps a
    fault on its model is the fault's only as far as the twin's own count of `broken` requests goes, less
    the attempts on that model that clients gave up meanwhile (None: not known, and then none of them is).
    """
    by = Counter(result.outcome for result in results)
    faulted = _faulted(results, faults, broken)
    return {
        "sent": len(results),
        "ok": by[Outcome.OK],
        "refused": by[Outcome.REFUSED],
        "failed": by[Outcome.FAILED] - faulted,
        "faulted": faulted,
        "unfinished": by[Outcome.UNFINISHED],
        "retried": sum(result.attempts - 1 for result in results),
    }


def by_phase(
    results: Sequence[Result], phases: Sequence[Phase], faults: Sequence[OrderedFault] = ()
) -> dict[str, PhaseReport]:
    """Counts and latency of each phase, by when a request was sent."""
    return {phase.name: _phase([r for r in results if _sent_in(r, phase)], faults) for phase in phases}


def errors(results: Iterable[Result]) -> dict[str, int]:
    """The commonest errors of failed requests, with how often each came."""
    texts = Counter(result.error or "" for result in results if result.outcome is Outcome.FAILED)
    return dict(texts.most_common(SHOWN_ERRORS))


def _phase(results: Sequence[Result], faults: Sequence[OrderedFault]) -> PhaseReport:
    return {"requests": counts(results, faults), "latency": latency(results)}


def _sent_in(result: Result, phase: Phase) -> bool:
    return phase.from_at <= result.sent_at < phase.to_at


def _faulted(results: Sequence[Result], faults: Sequence[OrderedFault], broken: int | None) -> int:
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    named = sum(any(_by_name(result, fault) for fault in faults) for result in failed)
    nameless = sum(any(_by_model(result, fault) for fault in faults) for result in failed)
    return named + min(nameless, max(0, (broken or 0) - named - _given_up(results, faults)))


def _given_up(results: Sequence[Result], faults: Sequence[OrderedFault]) -> int:
    """Attempts that a fault may have broken and their client made again: the twin counts them as broken."""
    met = [result for result in results if any(_met(result, fault) for fault in faults)]
    return sum(result.attempts - 1 for result in met)


def _by_name(result: Result, fault: OrderedFault) -> bool:
    return result.instance == fault.slot and _overlap(result, fault)


def _by_model(result: Result, fault: OrderedFault) -> bool:
    return result.instance is None and _met(result, fault)


def _met(result: Result, fault: OrderedFault) -> bool:
    return fault.model in (None, result.model) and _overlap(result, fault)


def _overlap(result: Result, fault: OrderedFault) -> bool:
    ended_at = result.sent_at + result.total_s
    return ended_at >= fault.from_at and (fault.to_at is None or result.sent_at <= fault.to_at)
