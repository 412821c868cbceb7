"""Replay: compute a recorded decision again from its frame, and compare.

The stored plan takes no part in the computation; it is looked at afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controlplane import forms
from controlplane.domain.decide import decide
from controlplane.domain.ids import CycleId, PoolName
from controlplane.domain.numbers import significant
from controlplane.domain.plan import Plan
from controlplane.domain.state import State
from controlplane.ports import Frame


@dataclass(frozen=True, slots=True)
class Difference:
    """Where stored and recomputed part: a path into the JSON form, and both values as JSON.

    `pool` is the one whose decision or memory it is about, empty for the plan itself.
    """

    path: str
    stored: str
    recomputed: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One cycle computed again. Without differences it is identical."""

    cycle: CycleId
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether plan and next state came out as they were recorded."""
        return not self.differences

    def of(self, pool: PoolName) -> Replayed:
        """The same, as far as it concerns one pool."""
        return replace(self, differences=tuple(gap for gap in self.differences if gap.pool in {"", pool}))


def recompute(frame: Frame) -> tuple[Plan, State]:
    """Plan and next state from a frame, by the same `decide`."""
    return decide(frame.observation, frame.policies, frame.state, frame.forecast)


def compare(cycle: CycleId, computed: tuple[Plan, State], stored: tuple[Plan, State]) -> Replayed:
    """Hold what was computed against what was stored.

    Names and whole numbers must be equal, other numbers equal to six significant digits: `exp` and
    `log` differ in the last bit between processors.
    """
    (plan, state), (old_plan, old_state) = computed, stored
    if forms.to_json(plan) == forms.to_json(old_plan) and forms.to_json(state) == forms.to_json(old_state):
        return Replayed(cycle, ())
    gaps = (*_parts("plan", "decisions", old_plan, plan), *_parts("state", "pools", old_state, state))
    return Replayed(cycle, gaps)


def _parts(name: str, by_pool: str, stored: Plan | State, computed: Plan | State) -> Iterator[Difference]:
    """The common part first, then pool by pool."""
    theirs, mine = json.loads(forms.to_json(stored)), json.loads(forms.to_json(computed))
    old, new = theirs.pop(by_pool), mine.pop(by_pool)
    yield from _differences(name, theirs, mine)
    for pool in sorted(set(old) | set(new)):
        for gap in _differences(f"{name}.{by_pool}.{pool}", old.get(pool), new.get(pool)):
            yield replace(gap, pool=pool)


def _differences(path: str, stored: Any, computed: Any) -> Iterator[Difference]:
    if isinstance(stored, Mapping) and isinstance(computed, Mapping):
        for key in sorted(set(stored) | set(computed)):
            yield from _differences(f"{path}.{key}", stored.get(key), computed.get(key))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (theirs, mine) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(f"{path}[{index}]", theirs, mine)
    elif not _equal(stored, computed):
        yield Difference(path, json.dumps(stored), json.dumps(computed))


def _equal(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return significant(stored) == significant(computed)
    return bool(stored == computed) and type(stored) is type(computed)
