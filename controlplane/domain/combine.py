"""The merge of proposals about one number, and the memory of who clamped whom.

Rules speak in order, each about the number as it stands:

- *set* replaces it; *at least* and *at most* only ever raise or lower it; *hold* brings back what is.
- Adding an *at least* never lowers the outcome; adding an *at most* never raises it.
- The same opinion twice changes nothing.
- Nobody's word: the number stays what it is.
- Whoever moves another's number is recorded with both numbers and both names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controlplane.domain.explanation import Clamp, Proposal, Step, Verb


@dataclass(frozen=True, slots=True)
class Merge:
    """The number as it stands: `value`, what it was `before` any rule, and `author`, the rule
    whose number it is (empty: nobody has spoken)."""

    before: float
    value: float
    author: str = ""


def start(before: float) -> Merge:
    """Nobody has spoken yet."""
    return Merge(before, before)


def merge(so_far: Merge, step: Step) -> tuple[Merge, Step]:
    """Let one rule speak. Returns the step with its clamps filled in."""
    clamps: list[Clamp] = []
    for proposal in step.proposals:
        value = _moved(so_far, proposal)
        if value != so_far.value and so_far.author not in {"", step.rule}:
            clamps.append(Clamp(step.rule, so_far.author, so_far.value, value, proposal.subject))
        speaks = value != so_far.value or (proposal.verb is Verb.SET and not so_far.author)
        so_far = replace(so_far, value=value, author=step.rule if speaks else so_far.author)
    return so_far, replace(step, clamps=step.clamps + tuple(clamps))


def combine(before: float, steps: Iterable[Step]) -> tuple[Merge, tuple[Step, ...]]:
    """Merge all steps in their order."""
    so_far, spoken = start(before), []
    for step in steps:
        so_far, with_clamps = merge(so_far, step)
        spoken.append(with_clamps)
    return so_far, tuple(spoken)


def _moved(so_far: Merge, proposal: Proposal) -> float:
    if proposal.verb is Verb.HOLD:
        return so_far.before
    if proposal.value is None:
        raise ValueError(f"a proposal to {proposal.verb} needs a value")
    if proposal.verb is Verb.SET:
        return proposal.value
    if proposal.verb is Verb.AT_LEAST:
        return max(so_far.value, proposal.value)
    return min(so_far.value, proposal.value)
