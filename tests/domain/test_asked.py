"""Sizes that somebody else brings about: a number is ordered, and what stands follows, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.asked import Asked, asked, stood
from controlplane.domain.fleet import Instance, Inventory, Phase
from controlplane.domain.observation import Hold, Observation, Reach
from controlplane.domain.plan import Action, ActionKind, Outcome
from controlplane.domain.policy import CapacityPolicy, Mode, Policies, PoolPolicy
from controlplane.domain.state import PoolState
from tests.builders import NOW, instances, policies, pool_policy, profile, steady_pool
from tests.domain.stories import POOL, decided, step_of
from tests.domain.strategies import SETTLED


def policy(**changes: object) -> PoolPolicy:
    return pool_policy("chat-8b", **{"capacity_mode": Mode.AUTO, **changes})


def rules(**changes: object) -> Policies:
    return policies(policy(**changes))


def followed(
    members: Sequence[Instance],
    running: float,
    stands: int | None,
    *,
    now: float = NOW,
    holds: Sequence[Hold] = (),
) -> Observation:
    """A pool whose size follows a gauge that shows `stands`."""
    seen = steady_pool(running=running, members=members, now=now, holds=holds)
    asked_ = () if stands is None else ((POOL, stands),)
    return replace(seen, reach=Reach.REPLICAS, inventory=Inventory(now, (), tuple(members), asked_))


def order(actions: Sequence[Action]) -> list[tuple[ActionKind, int, int | None]]:
    return [(each.kind, each.level, each.seen) for each in actions]


def test_a_level_is_ordered_once_and_not_again_while_it_stands() -> None:
    members = instances(6)
    first, _ = decided(followed(members, 62.0, 6), SETTLED, rules())
    again, _ = decided(followed(members, 62.0, 8), SETTLED, rules())
    assert order(first.actions) == [(ActionKind.SET_INSTANCES, 8, 6)]
    assert again.actions == ()


def test_after_a_restart_the_level_that_stood_is_shown_again_though_nothing_changes() -> None:
    """Whoever follows the gauge would else be left without a number for ever."""
    decision, _ = decided(followed(instances(6), 45.0, None), replace(SETTLED, last_target=6), rules())
    assert decision.outcome is Outcome.NOTHING_TO_DO
    assert order(decision.actions) == [(ActionKind.SET_INSTANCES, 6, None)]


def test_a_held_pool_is_not_ordered_about_either() -> None:
    hold = Hold(POOL, "ann", "a release", NOW - 10.0)
    decision, _ = decided(followed(instances(6), 62.0, None, holds=[hold]), SETTLED, rules())
    assert (decision.outcome, decision.actions) == (Outcome.HELD, ())


def test_what_was_ordered_and_is_loading_counts_so_that_it_is_not_ordered_twice() -> None:
    """Two of eight are on their way; once a cold start is long over, they are not coming any more."""
    grown = replace(SETTLED, last_target=8, stood=6, last_grow_at=NOW - 30.0)
    soon, _ = decided(followed(instances(6), 62.0, 8), grown, rules())
    late, _ = decided(followed(instances(6), 62.0, 8), replace(grown, last_grow_at=NOW - 271.0), rules())
    assert soon.explanation.before == 8.0
    assert late.explanation.before == 6.0


def test_half_the_targets_gone_is_not_half_a_pool() -> None:
    """The level would follow what is seen, and whoever follows the level would end what is not."""
    calm = replace(SETTLED, last_target=12, stood=12)
    whole, after = decided(followed(instances(12), 45.0, 12), calm, rules())
    half, held = decided(followed(instances(12)[:6], 45.0, 12), after, rules())
    assert whole.outcome is not Outcome.HELD
    assert (half.outcome, half.explanation.code) == (Outcome.HELD, "coverage_low")
    assert (half.explanation.before, half.explanation.after) == (12.0, 12.0)
    assert half.actions == ()
    assert {each.name: each.value for each in step_of(half, "coverage").inputs}["unseen"] == 6.0
    assert (held.last_target, held.stood) == (12, 12)


def test_all_targets_gone_is_no_pool_of_none() -> None:
    calm = replace(SETTLED, last_target=12, stood=12)
    gone, _ = decided(followed((), 0.0, 12), calm, rules())
    assert (gone.outcome, gone.explanation.after, gone.actions) == (Outcome.HELD, 12.0, ())


def test_instances_that_never_came_do_not_keep_a_pool_from_shrinking() -> None:
    """A full cluster gave six of eight: the pool is seen whole, and leaves as any other."""
    full = replace(SETTLED, last_target=8, stood=6, last_grow_at=NOW - 4000.0)
    decision, after = decided(followed(instances(6), 4.0, 8), full, rules())
    assert decision.outcome is Outcome.CHANGE
    ((kind, level, stands),) = order(decision.actions)
    assert (kind, stands, level < 6) == (ActionKind.SET_INSTANCES, 8, True)
    assert after.stood == level


def test_a_pool_that_was_told_to_shrink_and_has_not_yet_is_told_the_same_level() -> None:
    resting = replace(SETTLED, last_target=6, stood=6, last_shrink_at=NOW - 15.0)
    decision, _ = decided(followed(instances(8), 4.0, 6), resting, rules())
    assert (decision.explanation.after, decision.actions) == (6.0, ())


def test_a_lower_maximum_lets_go_of_what_vanished() -> None:
    """How people tell a pool that what is missing is not coming back."""
    missing = replace(SETTLED, last_target=12, stood=12)
    capacity = CapacityPolicy(minimum=2, maximum=6)
    decision, _ = decided(followed(instances(6), 45.0, 12), missing, rules(capacity=capacity))
    assert decision.outcome is not Outcome.HELD
    assert order(decision.actions) == [(ActionKind.SET_INSTANCES, 6, 12)]


def test_a_pool_that_is_only_observed_was_ordered_nothing() -> None:
    wished = PoolState(last_target=12, stood=6, last_grow_at=NOW)
    watching = replace(policy(), capacity_mode=Mode.OBSERVE)
    assert asked(policy(), profile(), wished, NOW, 6) == Asked(rising=6)
    assert asked(watching, profile(), wished, NOW, 6) == Asked()


@pytest.mark.parametrize("stands", [13, None])
def test_a_number_that_never_came_is_not_taken_back_while_the_pool_is_unseen(stands: int | None) -> None:
    """Three of thirteen came up while Prometheus was away: a smaller number would end them. Nor is one
    asked for by a controller that was started anew meanwhile."""
    grown = replace(SETTLED, last_target=13, stood=10, last_grow_at=NOW - 4000.0)
    blind, after = decided(followed(instances(4), 45.0, stands), grown, rules())
    assert (blind.outcome, blind.explanation.code) == (Outcome.HELD, "coverage_low")
    assert (order(blind.actions), after.last_target) == ([], 13)
    again, _ = decided(followed(instances(13), 45.0, 13, now=NOW + 15.0), after, rules())
    assert again.explanation.before == 13.0


@given(
    target=st.integers(0, 60),
    before=st.none() | st.integers(0, 60),
    standing=st.integers(0, 60),
    grew=st.none() | st.floats(0.0, 1000.0),
)
def test_an_order_adds_nothing_beyond_itself_and_takes_nothing_that_stands(
    target: int, before: int | None, standing: int, grew: float | None
) -> None:
    """rising + vanished + standing is at most the larger of what was asked for and what stands."""
    state = PoolState(last_target=target, stood=before, last_grow_at=None if grew is None else NOW - grew)
    found = asked(policy(), profile(), state, NOW, standing)
    assert found.rising >= 0
    assert found.vanished >= 0
    assert standing + found.rising + found.vanished <= max(standing, min(target, 40))
    assert stood(state, standing, target) <= target


def test_an_unreachable_instance_is_unseen_and_no_reason_for_a_smaller_level() -> None:
    members = [*instances(12)[:10], *(replace(each, phase=Phase.UNREACHABLE) for each in instances(12)[10:])]
    calm = replace(SETTLED, last_target=12, stood=12)
    decision, _ = decided(followed(members, 30.0, 12), calm, rules())
    assert decision.explanation.before == 12.0
    assert decision.actions == ()


def test_no_number_is_shown_before_the_pool_has_been_seen_for_a_window() -> None:
    """A list of targets that is only filling up would ask for less than there is."""
    window_s = policy().evidence.window_s
    for seen_for_s, ordered in ((window_s - 1.0, False), (window_s, True)):
        new = PoolState(seen_since=NOW - seen_for_s)
        decision, _ = decided(followed(instances(3), 45.0, None), new, rules(capacity=CapacityPolicy(12, 40)))
        assert decision.explanation.after == 12.0
        assert bool(decision.actions) == ordered
        assert step_of(decision, "level").code == ("level_ordered" if ordered else "level_watches")
