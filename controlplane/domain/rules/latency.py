"""P95 guard: latency above the SLO grows a pool only where load or a queue explains it.

A slow card and a long tail are not cured by GPUs: those are matters of routing and diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from controlplane.domain.callers import Latency
from controlplane.domain.callers import latency as as_callers_saw
from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Input, Proposal, Step, Verb, Vote
from controlplane.domain.load import proven_idle
from controlplane.domain.policy import Slo
from controlplane.domain.readings import Cause, Known, PoolSignal, Reading
from controlplane.domain.rules.base import CapacityView, Rule, figure, not_offered, seen

ID = "latency"
SILENT = frozenset({Cause.UNRESOLVABLE, Cause.TOO_FEW})


class Code(StrEnum):
    """Why."""

    BREACH = "latency_breach"
    ALONE = "latency_alone"
    UNBELIEVED = "latency_not_yet"
    WITHIN = "latency_within"
    IDLE = "latency_idle"
    UNRESOLVABLE = "latency_unresolvable"
    NOT_MEASURED = "latency_not_measured"
    MISSING = "latency_missing"


WORDS: Mapping[str, str] = {
    Code.BREACH: "its {latency.subject} is {latency} of {target} for {breaches}, and load or queue is high",
    Code.ALONE: "{latency.subject} alone is high ({latency} of {target}): load is {load}, {queue} wait",
    Code.UNBELIEVED: "{latency.subject} is up ({latency} of {target}) for {breaches}, believed at {needed}",
    Code.WITHIN: "its latency is within the SLO",
    Code.IDLE: "nobody asked for anything, so there is no latency",
    Code.UNRESOLVABLE: "its latency lies where the histogram can't resolve it",
    Code.NOT_MEASURED: "its latency is not measured here",
    Code.MISSING: "its latency is missing: {latency}",
}


def targets(slo: Slo) -> dict[PoolSignal, float]:
    """Each promised quantile with its target in seconds."""
    promised = {PoolSignal.TTFT_P95: slo.ttft_p95_s, PoolSignal.TPOT_P95: slo.tpot_p95_s}
    return promised if slo.e2e_p95_s is None else promised | {PoolSignal.E2E_P95: slo.e2e_p95_s}


def breaches(view: CapacityView) -> int:
    """Cycles in a row, this one included, in which some quantile stood above its target."""
    above = any(_excess(each.reading, target) > 1.0 for each, target in _latencies(view).values())
    return view.pool.state.breaches + 1 if above else 0


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Ask for one more where a believed breach goes with load or a queue; block shrinking in doubt."""
    count, needed = breaches(view), view.pool.policy.evidence.breach_cycles
    inputs = _inputs(view, count)
    if count == 0:
        return Step(ID, *_quiet(view), inputs)
    if count < needed:
        return Step(ID, Code.UNBELIEVED, Vote.BLOCK, inputs)
    if not _explained(view):
        return Step(ID, Code.ALONE, Vote.BLOCK, inputs)
    return Step(ID, Code.BREACH, Vote.GROW, inputs, (Proposal(Verb.AT_LEAST, view.before + 1.0),))


def _explained(view: CapacityView) -> bool:
    queue = view.pool.reading(PoolSignal.GATEWAY_QUEUE)
    waiting = isinstance(queue, Known) and queue.value > 0.0
    return waiting or view.load.lower > view.pool.policy.capacity.target_utilisation * view.before


def _quiet(view: CapacityView) -> tuple[Code, Vote]:
    """Nothing stands above its target: is that known, proven idle, or merely unseen?"""
    readings = [each.reading for each, _ in _latencies(view).values()]
    opinions = [_silence(view, each) for each in readings if not isinstance(each, Known)]
    if not opinions:
        return Code.WITHIN, Vote.SHRINK_OK
    if Code.MISSING in opinions:
        return Code.MISSING, Vote.BLOCK
    return opinions[0], Vote.ABSTAIN


def _silence(view: CapacityView, reading: Reading) -> Code:
    if isinstance(reading, Known):
        return Code.WITHIN
    if reading.cause is Cause.NO_TRAFFIC and proven_idle(view.pool):
        return Code.IDLE
    if reading.cause in SILENT:
        return Code.UNRESOLVABLE
    return Code.NOT_MEASURED if not_offered(reading) else Code.MISSING


def _inputs(view: CapacityView, count: int) -> tuple[Input, ...]:
    latencies = _latencies(view)
    signal, (worst, target) = max(latencies.items(), key=lambda each: _excess(each[1][0].reading, each[1][1]))
    latency = seen(signal, worst.reading, view.pool.now, name="latency")
    queue = view.pool.reading(PoolSignal.GATEWAY_QUEUE)
    return (
        replace(latency, subject=f"{signal} ({worst.source})"),
        figure("target", target, "seconds"),
        figure("breaches", count, "cycles"),
        figure("needed", view.pool.policy.evidence.breach_cycles, "cycles"),
        figure("load", view.load.lower, "instances"),
        figure("queue", queue.value if isinstance(queue, Known) else None, "requests"),
    )


def _latencies(view: CapacityView) -> dict[PoolSignal, tuple[Latency, float]]:
    """Each promised quantile as callers saw it, with its target in seconds."""
    return {
        signal: (as_callers_saw(view.pool, signal, target), target)
        for signal, target in targets(view.pool.policy.slo).items()
    }


def _excess(reading: Reading, target: float) -> float:
    return reading.value / target if isinstance(reading, Known) else -1.0


RULE = Rule(ID, Code, WORDS, propose)
