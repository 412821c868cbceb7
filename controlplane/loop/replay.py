"""Replay: compute a recorded decision again from its frame, and compare.

The stored plan takes no part in the computation; it is looked at afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane import forms
from controlplane.domain.decide import decide
from controlplane.domain.ids import CycleId
from controlplane.domain.plan import Plan
from controlplane.domain.state import State
from controlplane.ports import Frame


@dataclass(frozen=True, slots=True)
class Difference:
    """Where stored and recomputed part: a path into the JSON form, and both values as JSON."""

    path: str
    stored: str
    recomputed: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """One cycle computed again. Without differences it is identical."""

    cycle: CycleId
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether plan and next state came out as they were recorded."""
        return not self.differences


def recompute(frame: Frame) -> tuple[Plan, State]:
    """Plan and next state from a frame, by the same `decide`."""
    return decide(frame.observation, frame.policies, frame.state, frame.forecast)


def compare(cycle: CycleId, computed: tuple[Plan, State], stored: tuple[Plan, State]) -> Replayed:
    """Hold what was computed against what was stored."""
    (plan, state), (old_plan, old_state) = computed, stored
    differences = (
        *_differences("plan", _form(old_plan), _form(plan)),
        *_differences("state", _form(old_state), _form(state)),
    )
    return Replayed(cycle, differences)


def _form(value: Plan | State) -> Any:
    return json.loads(forms.to_json(value))


def _differences(path: str, stored: Any, computed: Any) -> Iterator[Difference]:
    if isinstance(stored, Mapping) and isinstance(computed, Mapping):
        for key in sorted(set(stored) | set(computed)):
            yield from _differences(f"{path}.{key}", stored.get(key), computed.get(key))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (theirs, mine) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(f"{path}[{index}]", theirs, mine)
    elif stored != computed:
        yield Difference(path, json.dumps(stored), json.dumps(computed))
