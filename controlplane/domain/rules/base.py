"""What a rule is, and small words that all rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Input, Step
from controlplane.domain.load import Load
from controlplane.domain.numbers import significant
from controlplane.domain.readings import UNITS, Cause, Known, PoolSignal, Reading
from controlplane.domain.trust import NOT_OFFERED
from controlplane.domain.view import PoolView


@dataclass(frozen=True, slots=True)
class CapacityView:
    """A pool in a capacity cycle. `before`: instances that take traffic or are on their way."""

    pool: PoolView
    load: Load
    before: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about a pool's size: its id, its closed list of reason codes, the clause that
    follows "because" for each code (placeholders are names of its inputs), and its opinion."""

    id: str
    codes: type[StrEnum]
    words: Mapping[str, str]
    propose: Callable[[CapacityView, Merge], Step]


def figure(
    name: str, value: float | None, unit: str, *, age_s: float | None = None, subject: str = ""
) -> Input:
    """A named figure, rounded as everything that goes into a plan."""
    rounded = None if value is None else significant(float(value))
    return Input(name, rounded, unit, None if age_s is None else significant(age_s, 3), subject=subject)


def absent(name: str, unit: str, cause: Cause, *, subject: str = "") -> Input:
    """A figure that is missing, with its cause."""
    return Input(name, None, unit, None, cause, subject)


def seen(signal: PoolSignal, reading: Reading, now: float, *, name: str | None = None) -> Input:
    """A pool's reading as an input, with its age, or with the cause of its absence."""
    called, unit = name or signal.value, UNITS[signal]
    if isinstance(reading, Known):
        return figure(called, reading.value, unit, age_s=now - reading.sampled_at)
    return absent(called, unit, reading.cause)


def not_offered(reading: Reading) -> bool:
    """Whether nobody provides this signal here, so that it has no opinion."""
    return not isinstance(reading, Known) and reading.cause in NOT_OFFERED
