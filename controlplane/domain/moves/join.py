"""A pool's decision together with what the fleet's step made of it."""

from __future__ import annotations

from dataclasses import replace

from controlplane.domain.explanation import Explanation, Step, Vote
from controlplane.domain.moves.step import ID, MOVES, Moved
from controlplane.domain.plan import Action, ActionKind, Decision, Outcome


def with_moves(decision: Decision, moved: Moved) -> Decision:
    """The same decision, carried out by moves where the pool moves by itself.

    Its number becomes what is achieved, and its one order about a number the orders about instances.
    """
    actions = moved.actions.get(decision.pool, ())
    steps = moved.steps.get(decision.pool, ())
    if decision.pool in moved.achieved:
        return _achieved(decision, moved.achieved[decision.pool], steps, actions)
    if not actions and not steps:
        return decision
    told = replace(decision.explanation, steps=(*decision.explanation.steps, *steps))
    if decision.actions or not actions:
        return replace(decision, actions=(*decision.actions, *actions), explanation=told)
    why = _making_room(told, steps) if steps else _going_on(told, actions)
    return replace(decision, outcome=Outcome.CHANGE, actions=actions, explanation=why)


def _achieved(
    decision: Decision, change: int, steps: tuple[Step, ...], actions: tuple[Action, ...]
) -> Decision:
    before = decision.explanation.before or 0.0
    told = replace(decision.explanation, steps=(*decision.explanation.steps, *steps), after=before + change)
    kept = tuple(each for each in decision.actions if each.kind is not ActionKind.SET_INSTANCES)
    done = replace(decision, outcome=Outcome.CHANGE, actions=(*kept, *actions), explanation=told)
    if change or actions:
        return done
    stopped = replace(told, deciding=ID, code=steps[0].code)
    return replace(done, outcome=Outcome.NOTHING_TO_DO, explanation=stopped)


def _making_room(told: Explanation, steps: tuple[Step, ...]) -> Explanation:
    """Nothing was decided for the pool itself: another one takes its GPUs."""
    return replace(told, deciding=steps[-1].rule, code=steps[-1].code)


def _going_on(told: Explanation, actions: tuple[Action, ...]) -> Explanation:
    """Nothing new was decided: a move that was decided before goes on."""
    step = Step(MOVES, actions[0].code, Vote.ABSTAIN)
    return replace(told, steps=(*told.steps, step), deciding=step.rule, code=step.code)
