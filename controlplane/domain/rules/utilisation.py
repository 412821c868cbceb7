"""GPU utilisation: the profiling counters may ask for growth, the device counter never decides.

The device counter says that some kernel ran: near 1 from two running sequences on. SM_ACTIVE is
better and still high under any batch, so it speaks only where the load cannot contradict it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Input, Proposal, Step, Verb, Vote
from controlplane.domain.readings import CAUSES, Cause, Column, Signal
from controlplane.domain.rules.base import CapacityView, Rule, absent, figure

ID = "utilisation"
COUNTERS = (Signal.SM_ACTIVE, Signal.DRAM_ACTIVE)
ABSENT = frozenset({Cause.NOT_ASKED, Cause.NOT_EXPORTED, Cause.EMPTY})


class Code(StrEnum):
    """Why."""

    HOT = "utilisation_hot"
    CONTRADICTED = "utilisation_contradicted"
    BELOW = "utilisation_below"
    DEVICE_ONLY = "utilisation_device_only"
    NOT_EXPORTED = "utilisation_not_exported"
    MISSING = "utilisation_missing"


WORDS: Mapping[str, str] = {
    Code.HOT: "its {utilisation.subject} is {utilisation}, above {bound}, and no load contradicts it",
    Code.CONTRADICTED: "its {utilisation.subject} is {utilisation}, though its load is below target",
    Code.BELOW: "its {utilisation.subject} is {utilisation}, under {bound}",
    Code.DEVICE_ONLY: "only the device counter is exported ({utilisation}), which saturates early",
    Code.NOT_EXPORTED: "no GPU counter is exported",
    Code.MISSING: "GPU utilisation is missing for part of the pool: {utilisation}",
}


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Grow on SM_ACTIVE (else DRAM_ACTIVE) above `grow_above`, if the load is not known to be low."""
    device = view.pool.column(Signal.GPU_UTILISATION)
    offered = [signal for signal in COUNTERS if not _absent(view.pool.column(signal))]
    if not offered:
        return _device_only(view, device)
    signal = offered[0]
    if not view.pool.covered(signal):
        return Step(ID, Code.MISSING, Vote.BLOCK, _inputs(view, signal))
    return _by_counter(view, signal)


def _by_counter(view: CapacityView, signal: Signal) -> Step:
    inputs, capacity = _inputs(view, signal), view.pool.policy.capacity
    level = inputs[0].value
    if level is None or level <= capacity.grow_above:
        return Step(ID, Code.BELOW, Vote.ABSTAIN, inputs)
    if view.load.upper is not None and view.load.upper <= capacity.grow_above * view.before:
        return Step(ID, Code.CONTRADICTED, Vote.ABSTAIN, inputs)
    # The base is what runs now, not what is on its way: with long cold starts each round
    # would otherwise multiply the overshoot of the one before.
    need = math.ceil(view.pool.ready * level / capacity.target_utilisation - 1e-9)
    return Step(ID, Code.HOT, Vote.GROW, inputs, (Proposal(Verb.AT_LEAST, float(need)),))


def _device_only(view: CapacityView, device: Column) -> Step:
    inputs = _inputs(view, Signal.GPU_UTILISATION)
    if inputs[0].value is not None:
        return Step(ID, Code.DEVICE_ONLY, Vote.ABSTAIN, inputs)
    if _absent(device):
        return Step(ID, Code.NOT_EXPORTED, Vote.ABSTAIN, inputs)
    return Step(ID, Code.MISSING, Vote.ABSTAIN, inputs)


def _absent(column: Column) -> bool:
    """Nobody in the pool has it, for a cause that says that nobody provides it."""
    return not np.any(column.ok) and all(CAUSES[code] in ABSENT for code in np.unique(column.cause).tolist())


def _inputs(view: CapacityView, signal: Signal) -> tuple[Input, ...]:
    column, rows = view.pool.column(signal), view.pool.traffic_rows
    known = column.ok & rows
    bound = figure("bound", view.pool.policy.capacity.grow_above, "ratio")
    if not np.any(known):
        code = int(column.cause[rows][0]) if np.any(rows) else CAUSES.index(Cause.NOT_READY)
        return (absent("utilisation", "ratio", CAUSES[code], subject=signal.value), bound)
    age = view.pool.now - float(np.min(column.sampled_at[known]))
    mean = float(np.mean(column.value[known]))
    return (figure("utilisation", mean, "ratio", age_s=age, subject=signal.value), bound)


RULE = Rule(ID, Code, WORDS, propose)
