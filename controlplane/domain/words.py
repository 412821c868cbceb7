"""From a decision to sentences: the one place where reasons become words.

Pattern: pool, verb, from and to, because, signal value (age), bound. Used by the command line, the
pages, alerts and pull requests alike, so that all of them tell one story.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controlplane.domain import asked, pushes, rules
from controlplane.domain.explanation import Clamp, Explanation, Input, Proposal, Step, Verb, Vote
from controlplane.domain.fleet import Life
from controlplane.domain.ids import DecisionId
from controlplane.domain.moves.site import WORDS as MOVE_WORDS
from controlplane.domain.moves.step import MOVES
from controlplane.domain.moves.step import WORDS as PLACEMENT_WORDS
from controlplane.domain.moves.step import Code as Placement
from controlplane.domain.plan import Action, ActionKind, Decision, Outcome
from controlplane.domain.policy import Mode
from controlplane.domain.readings import Cause
from controlplane.domain.rules import coverage, human_hold, votes
from controlplane.domain.rules.weights import ALL as WEIGHT_RULES
from controlplane.domain.rules.weights import pinned

CLAUSES: Mapping[str, str] = {
    **{code: clause for rule in rules.ALL for code, clause in rule.words.items()},
    **{code: clause for rule in WEIGHT_RULES for code, clause in rule.words.items()},
    **votes.WORDS,
    **pinned.WORDS,
    **pushes.WORDS,
    **MOVE_WORDS,
    **PLACEMENT_WORDS,
    **asked.WORDS,
    "imbalance_shown": "imbalance of utilisation and busyness",
    "routing_external": "another router routes its requests",
    "failure_policy": "its policy can't be carried out: {detail}",
    "failure_rule": "a rule broke: {detail}",
}
"""The clause after "because" for every reason code. Placeholders name the step's inputs."""

UNIT_WORDS: Mapping[str, str] = {
    "": "",
    "ratio": "",
    "seconds": " s",
    "bool": "",
    "per_second": " a second",
    "tokens_squared": " tokens²",
    "celsius": " °C",
}
"""How a unit is said after a number; others are said by their own name."""

CAUSE_WORDS: Mapping[Cause, str] = {
    Cause.UNSEEN: "no series: its scrape failed, or it is gone",
    Cause.STALE: "too old to act on",
    Cause.FROZEN: "its counters stand still while work arrives",
    Cause.EMPTY: "the metrics source answered with nothing",
    Cause.QUERY_FAILED: "the query failed",
    Cause.QUERY_TIMEOUT: "the query timed out",
    Cause.PARTIAL: "the source says its answer is incomplete",
    Cause.CLOCK_SKEW: "clocks disagree",
    Cause.WINDOW_TOO_SHORT: "its window reaches into a gap, or holds too few scrapes",
}
"""How a cause is said; others are said by their own name."""

_VERBS = frozenset({ActionKind.ADD, ActionKind.CLOSE, ActionKind.OPEN, ActionKind.REMOVE})
# Their names say all of it: there is one level that each can ask for.


@dataclass(frozen=True, slots=True)
class _Figure:
    """An input as text; `subject` and `cause` can be named in a clause too."""

    input: Input

    def __str__(self) -> str:
        if self.input.value is None:
            return "none" if self.input.cause is Cause.NONE else f"unknown ({self.cause})"
        age = "" if self.input.age_s is None else f" ({self.input.age_s:.0f} s old)"
        return f"{number(self.input.value, self.input.unit)}{age}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @property
    def plain(self) -> str:
        """The number alone, where the unit has just been said."""
        return "?" if self.input.value is None else number(self.input.value, "")

    @property
    def subject(self) -> str:
        """The instance's slot, or whatever the figure is about, in readable form."""
        return slot(self.input.subject).replace("_", " ")

    @property
    def cause(self) -> str:
        """Why the figure is missing."""
        return CAUSE_WORDS.get(self.input.cause, self.input.cause.value.replace("_", " "))


def sentence(decision: Decision, decision_id: DecisionId | None = None) -> str:
    """One sentence: what was decided, and because of what.

    Example: "chat-8b grows from 6 to 8 instances because its load is 7.1 instances (2 s old) and
    6 instances carry 4.8 instances."
    """
    prefix = "" if decision_id is None else f"{decision_id}: "
    pushed = _most_changed(decision)
    reason = because(decision.explanation, (pushed.instance or "") if pushed else "")
    return f"{prefix}{decision.pool} {_verb(decision)} because {reason}."


def because(explanation: Explanation, subject: str = "") -> str:
    """The deciding rule's clause; of several figures of one name, the one about `subject`."""
    for step in explanation.steps:
        if step.rule == explanation.deciding and step.code == explanation.code:
            return clause(step, subject)
    return CLAUSES.get(explanation.code, explanation.code.replace("_", " "))


def explain(decision: Decision, decision_id: DecisionId | None = None) -> tuple[str, ...]:
    """The long form, a line each: the sentence, every rule in order with its inputs and who clamped
    whom, and every action."""
    return (
        sentence(decision, decision_id),
        *(line for step in decision.explanation.steps for line in _step_lines(step)),
        *(f"→ {action_words(action)}" for action in decision.actions),
    )


def clause(step: Step, subject: str = "") -> str:
    """What one rule says, with its figures. A code without words is said by its own name.

    Of several figures of one name the one about `subject` is meant, else the first.
    """
    template = CLAUSES.get(step.code, step.code.replace("_", " "))
    figures: dict[str, object] = {"detail": step.detail}
    for each in sorted(step.inputs, key=lambda each: each.subject == subject):
        figures[each.name] = (
            _Figure(each) if each.subject == subject else figures.get(each.name, _Figure(each))
        )
    return template.format(**figures)


def number(value: float, unit: str) -> str:
    """A figure with its unit: `0.86`, `2.3 s`, `14 instances`, `1 instance`."""
    plain = f"{value:.0f}" if value == round(value) and unit != "ratio" else f"{value:.3g}"
    shown = f"{value:.2f}" if unit == "ratio" else plain
    name = UNIT_WORDS.get(unit, f" {unit.replace('_', ' ')}")
    return f"{shown}{name.removesuffix('s') if shown == '1' and len(name) > 2 else name}"


def slot(subject: str) -> str:
    """The slot in an instance id (`demo/chat-8b-03@s9k2x1` is `chat-8b-03`); others as they are."""
    return subject.rpartition("/")[2].partition("@")[0]


def action_words(action: Action) -> str:
    """One level: "weight of chat-8b-03 at edge 100 → 75"."""
    seen = "?" if action.seen is None else str(action.seen)
    why = CLAUSES.get(action.code, action.code)
    if action.kind is ActionKind.SET_INSTANCES:
        return f"instances {seen} → {action.level}: {action.code.replace('_', ' ')}"
    name = slot(action.instance or "")
    if action.kind in _ORDERS:
        return f"{_order(action)}: {why}"
    if action.kind in _VERBS:
        return f"{action.kind} {name} at {action.gateway}: {why}"
    level = "weight" if action.kind is ActionKind.SET_WEIGHT else "limit"
    return f"{level} of {name} at {action.gateway} {seen} → {action.level}: {why}"


_ORDERS = frozenset({ActionKind.ADOPT, ActionKind.ENSURE})


def _order(action: Action) -> str:
    """An order to the orchestrator: "wake chat-8b-s01", "put batch-eval-02 to sleep"."""
    name = slot(action.instance or "")
    if action.kind is ActionKind.ADOPT:
        return f"adopt {name}"
    if action.kind is ActionKind.CLOSE:
        return f"close {name}"
    if action.level == Life.ASLEEP.level:
        return f"put {name} to sleep"
    if action.level == Life.GONE.level:
        return f"end {name}"
    return f"{'wake' if action.seen == Life.ASLEEP.level else 'start'} {name}"


def _verb(decision: Decision) -> str:
    explanation = decision.explanation
    if explanation.deciding == MOVES or explanation.code == Placement.EVICTED:
        return _moving(decision)
    if decision.outcome is Outcome.FAILED or explanation.code == coverage.Code.NO_SIZE:
        return "is left alone"
    if explanation.before is None or explanation.after is None:
        return _weights_verb(decision)
    before, after = int(explanation.before), int(explanation.after)
    if before != after:
        grows = "grow" if after > before else "shrink"
        noun = "instance" if after == 1 else "instances"
        return f"{_mood(decision.mode, grows)} from {before} to {after} {noun}"
    if decision.outcome is Outcome.HELD:
        return "is held, no shrinking"
    return _stays(explanation)


def _moving(decision: Decision) -> str:
    """Nothing new about its number: it gives up GPUs, or goes on with what was decided before."""
    if decision.explanation.code == Placement.EVICTED:
        return "makes room"
    more = len(decision.actions) - 1
    return f"goes on moving ({_order(decision.actions[-1])}{f' and {more} more' if more else ''})"


def _mood(mode: Mode, verb: str) -> str:
    return {Mode.OBSERVE: f"would {verb}", Mode.RECOMMEND: f"asks to {verb}", Mode.AUTO: f"{verb}s"}[mode]


def _stays(explanation: Explanation) -> str:
    """ "did not shrink" or "did not grow" where somebody's wish was cut, else "stays"."""
    wished = [p.value for step in explanation.steps for p in step.proposals if p.verb is Verb.SET]
    before = explanation.before or 0.0
    wish = next((value for value in wished if value is not None), before)
    if wish != before:
        return f"did not {'grow' if wish > before else 'shrink'} ({before:.0f} instances)"
    return f"stays at {number(before, 'instances')}"


def _weights_verb(decision: Decision) -> str:
    held = decision.explanation.deciding in {coverage.ID, human_hold.ID}
    changed = _most_changed(decision)
    if held:
        mended = f", {len(decision.actions)} levels put back" if decision.actions else ""
        return f"is held, weights frozen{mended},"
    if not decision.actions:
        return "keeps its weights"
    if changed is None:
        return f"changes {number(len(decision.actions), 'levels')} at its gateways ({_first(decision)})"
    return f"{_sends(changed)}{_and_others(decision, changed)}"


def _most_changed(decision: Decision) -> Action | None:
    """The weight that is lowered most, else the one that is raised least: bad news first."""
    pushed = [action for action in decision.actions if action.kind is ActionKind.SET_WEIGHT]
    return min(pushed, key=lambda action: action.level - (action.seen or 0), default=None)


def _sends(action: Action) -> str:
    less = "less" if action.level < (action.seen or 0) else "more"
    seen = "?" if action.seen is None else action.seen
    return f"sends {less} to {slot(action.instance or '')} (weight {seen} → {action.level})"


def _and_others(decision: Decision, named: Action) -> str:
    pushed = {action.instance for action in decision.actions if action.kind is ActionKind.SET_WEIGHT}
    others = len(pushed) - 1 if named.instance in pushed else len(pushed)
    return f" and changes {others} more" if others else ""


def _first(decision: Decision) -> str:
    return action_words(decision.actions[0]).partition(":")[0]


def _step_lines(step: Step) -> Iterator[str]:
    vote = "" if step.vote is Vote.ABSTAIN else f" [{step.vote.value.replace('_', ' ')}]"
    yield f"{step.rule}{vote}: {clause(step)}"
    for each in step.inputs:
        about = f" of {slot(each.subject)}" if each.subject else ""
        yield f"    {each.name}{about} = {_Figure(each)}"
    for proposal in step.proposals:
        yield f"    proposes {_proposal_words(proposal)}"
    for clamp in step.clamps:
        yield f"    {_clamp_words(clamp)}"


def _proposal_words(proposal: Proposal) -> str:
    about = f" for {slot(proposal.subject)}" if proposal.subject else ""
    value = "" if proposal.value is None else f" {proposal.value:.6g}"
    return f"{proposal.verb.value.replace('_', ' ')}{value}{about}"


def _clamp_words(clamp: Clamp) -> str:
    return f"{clamp.by} moved {clamp.whom}'s {clamp.before:.6g} to {clamp.after:.6g}"
