"""Why: as data. `words.py` turns it into sentences, for every surface alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.readings import Cause


class Vote(StrEnum):
    """What a rule says of a pool's size."""

    GROW = "grow"
    SHRINK_OK = "shrink_ok"
    BLOCK = "block"  # no shrinking, for whatever reason
    ABSTAIN = "abstain"


class Verb(StrEnum):
    """What a proposal does to the number it speaks of."""

    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    SET = "set"
    HOLD = "hold"  # keep what is


@dataclass(frozen=True, slots=True)
class Input:
    """A named figure that a rule looked at. `value` is None where missing, with its cause.

    `age_s` in seconds at the cycle's instant (None: not sampled, such as a policy's bound).
    """

    name: str
    value: float | None
    unit: str
    age_s: float | None = None
    cause: Cause = Cause.NONE
    subject: str = ""  # the instance or gateway it is about; empty: the pool


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a rule wants, in its own unit (`instances`, or a weight relative to 1.0).

    `subject` names the instance for weight rules, and is empty for the pool's size.
    """

    verb: Verb
    value: float | None = None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Clamp:
    """Somebody's number was cut: `by` (rule id) moved `subject`'s value from `before` to `after`,
    which `whom` (rule id) had asked for."""

    by: str
    whom: str
    before: float
    after: float
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule said, in the order of the rules. `detail`: free words for people, never parsed."""

    rule: str
    code: str  # reason code, from the rule's own closed list
    vote: Vote
    inputs: tuple[Input, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    clamps: tuple[Clamp, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole of it: rules top to bottom, and which one decided (`deciding`, a rule id)."""

    steps: tuple[Step, ...]
    deciding: str
    code: str  # the deciding rule's reason code: what lists and filters use
    before: float | None  # instances before (capacity), None for weights
    after: float | None
