"""Sentences: every reason has words, and they hold the figures that decided."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given

from controlplane.domain import pushes, rules, words
from controlplane.domain.explanation import Input, Step, Vote
from controlplane.domain.ids import CycleId, CycleKind, DecisionId
from controlplane.domain.observation import Hold, Observation
from controlplane.domain.plan import Action, ActionKind
from controlplane.domain.policy import Mode
from controlplane.domain.readings import Cause, Column, Missing
from controlplane.domain.rules import votes
from controlplane.domain.rules import weights as weight_rules
from controlplane.domain.state import PoolState
from tests.builders import MIX, NOW, instances, observation, policies, pool_policy, steady_pool
from tests.domain.stories import POOL, decided
from tests.domain.strategies import observations
from tests.domain.test_weights import pool


@pytest.mark.parametrize("mode", Mode)
def test_a_growth_says_from_where_to_where_by_what_and_how_old(mode: Mode) -> None:
    verb = {Mode.OBSERVE: "would grow", Mode.RECOMMEND: "asks to grow", Mode.AUTO: "grows"}[mode]
    decision, _ = decided(steady_pool(6, 62.0), rules=policies(pool_policy(capacity_mode=mode)))
    assert words.sentence(decision) == (
        f"chat-8b {verb} from 6 to 8 instances because its load is 5.9 instances (2 s old) and 6 carry 4.8."
    )


def test_a_decision_can_be_named() -> None:
    named = DecisionId(CycleId("demo", CycleKind.CAPACITY, 7), POOL)
    decision, _ = decided(steady_pool(6, 45.0))
    assert words.sentence(decision, named).startswith("demo:capacity:7:chat-8b: chat-8b ")


def test_what_did_not_happen_is_said_too() -> None:
    decision, _ = decided(steady_pool(6, 30.0))
    assert words.sentence(decision) == (
        "chat-8b did not shrink (6 instances) because 5 instances would have carried its load at 0.75 "
        "of capacity, at most 0.70."
    )


def test_a_hold_says_what_is_unseen_and_what_ends_it() -> None:
    built = pool()
    blind = replace(built, signals={each: Column.missing(6, Cause.UNSEEN) for each in built.signals})
    decision, _ = decided(blind)
    assert words.sentence(decision) == (
        "chat-8b is held, weights frozen, because 6 of 6 instances are unseen "
        "(coverage 0.00, at least 0.90): no series: its scrape failed, or it is gone."
    )


@pytest.mark.parametrize("kind", CycleKind)
def test_a_pool_of_unknown_size_is_said_to_be_left_alone(kind: CycleKind) -> None:
    decision, _ = decided(observation((), {}, {}, kind=kind, world=Missing(Cause.NOT_ASKED)))
    assert words.sentence(decision) == (
        "chat-8b is left alone because its size is unknown: "
        "the orchestrator did not say what exists, nor did it before."
    )


def test_a_weight_names_the_instance_and_its_speed() -> None:
    decision, _ = decided(pool([1.0] * 5 + [0.4]), PoolState(mix=MIX))
    assert words.sentence(decision) == (
        "chat-8b sends less to chat-8b-06 (weight 100 → 75) because it runs at 0.40 (2 s old) "
        "of the pool's speed."
    )


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (ActionKind.ADD, "push_joins", "add chat-8b-06 at edge: the gateway does not have it yet"),
        (
            ActionKind.REMOVE,
            "push_gone",
            "remove chat-8b-06 at edge: it is gone, and nothing is in flight there",
        ),
        (ActionKind.CLOSE, "push_leaves", "close chat-8b-06 at edge: it does not take traffic now"),
        (ActionKind.OPEN, "push_returns", "open chat-8b-06 at edge: it takes traffic again"),
    ],
)
def test_who_comes_and_goes_is_said_by_its_verb_and_why(kind: ActionKind, code: str, said: str) -> None:
    action = Action(kind, POOL, "edge", instances(6)[5].instance_id, 1, 0, code)
    assert words.action_words(action) == said


def test_a_persons_hold_is_named_with_its_author() -> None:
    decision, _ = decided(steady_pool(8, 4.0, holds=[Hold(None, "ada", "rollout", NOW)]))
    assert words.sentence(decision) == ("chat-8b is held, no shrinking because ada holds it: rollout.")


def test_a_broken_policy_is_named() -> None:
    decision, _ = decided(steady_pool(2), rules=policies(pool_policy(profile="no-such")))
    assert "is left alone because its policy can't be carried out" in words.sentence(decision)
    assert "'no-such'" in words.sentence(decision)


def test_the_long_form_goes_rule_by_rule_and_names_who_clamped_whom() -> None:
    lines = words.explain(decided(steady_pool(8, 4.0))[0])
    text = "\n".join(lines)
    order = [line.partition(":")[0].partition(" ")[0] for line in lines if not line.startswith((" ", "→"))]
    assert order[1:8] == [rule.id for rule in rules.ALL[:7]]
    assert "step_limit moved offered_load's 2 to 6" in text
    assert "→ instances 8 → 6" in text


def test_every_code_has_a_clause() -> None:
    codes = {
        *(code for rule in rules.ALL for code in rule.codes),
        *(code for rule in weight_rules.ALL for code in rule.codes),
        *votes.Code,
        *pushes.Code,
    }
    assert codes - set(words.CLAUSES) == set()


def test_no_two_rules_share_a_code_or_an_id() -> None:
    every: list[rules.Rule | weight_rules.WeightRule] = [*rules.ALL, *weight_rules.ALL]
    codes = [code for rule in every for code in rule.codes]
    assert len(codes) == len(set(codes))
    assert len({rule.id for rule in every}) == len(every)


@given(observations())
def test_every_step_of_every_decision_can_be_said(built: Observation) -> None:
    """All placeholders of a clause are inputs of its step."""
    decision, _ = decided(built)
    assert decision.explanation.steps
    for line in words.explain(decision):
        assert "{" not in line
        assert "nan" not in line.lower().split()
    for step in decision.explanation.steps:
        names = {
            name.partition(".")[0]
            for _, name, _, _ in string.Formatter().parse(words.CLAUSES[step.code])
            if name
        }
        assert names <= {each.name for each in step.inputs} | {"detail"}


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.861, "ratio", "0.86"),
        (1.0, "ratio", "1.00"),
        (1.0, "instances", "1 instance"),
        (14.0, "instances", "14 instances"),
        (91.84, "instances", "91.8 instances"),
        (2.31, "seconds", "2.31 s"),
        (1.0, "seconds", "1 s"),
        (5.0, "per_second", "5 a second"),
    ],
)
def test_a_number_carries_its_unit(value: float, unit: str, said: str) -> None:
    assert words.number(value, unit) == said


def test_a_missing_figure_is_said_with_its_cause_and_never_as_zero() -> None:
    step = Step(
        "queue", "queue_missing", Vote.BLOCK, (Input("gateway_queue", None, "requests", None, Cause.STALE),)
    )
    assert words.clause(step) == "the gateway's queue is unknown: unknown (too old to act on)"
