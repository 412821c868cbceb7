"""The story is a pure function of its length."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.demo.timeline import FAILURES, SHORTEST_S, Deed, open_end, story


@given(st.floats(SHORTEST_S, 100_000.0))
def test_phases_follow_each_other_without_a_gap_and_fill_the_whole(duration_s: float) -> None:
    phases = story(duration_s)
    assert phases[0].from_s == 0.0
    assert phases[-1].to_s == duration_s
    for before, after in itertools.pairwise(phases):
        assert before.to_s == after.from_s
        assert before.from_s < before.to_s


def test_the_same_length_tells_the_same_story() -> None:
    assert story(120.0) == story(120.0)
    assert story(120.0) != story(121.0)


@pytest.mark.parametrize("duration_s", [SHORTEST_S, 120.0, 420.0])
def test_the_throttle_and_the_surge_come_before_all_four_failures(duration_s: float) -> None:
    deeds = [phase.deed for phase in story(duration_s) if phase.deed is not Deed.NOTHING]
    assert deeds == [Deed.THROTTLE, Deed.SURGE, *FAILURES]


def test_after_the_surge_there_is_more_time_than_it_took_before_anything_fails() -> None:
    """What was borrowed goes back while the metrics can be read: blind, no pool shrinks."""
    phases = story(420.0)
    surge = next(number for number, phase in enumerate(phases) if phase.deed is Deed.SURGE)
    after = phases[surge + 1]
    assert after.deed is Deed.NOTHING
    assert after.to_s - after.from_s > phases[surge].to_s - phases[surge].from_s


def test_between_two_failures_there_is_time_to_recover() -> None:
    phases = story(90.0)
    places = [number for number, phase in enumerate(phases) if phase.deed in FAILURES]
    for one, next_one in itertools.pairwise(places):
        assert next_one - one == 2
        assert phases[one + 1].deed is Deed.NOTHING


def test_in_two_minutes_a_changed_target_list_has_time_to_show() -> None:
    """Prometheus looks at its lists every 5 s."""
    for phase in story(120.0):
        if phase.deed in {Deed.EMPTY, Deed.HALF}:
            assert phase.to_s - phase.from_s > 7.0


def test_a_story_too_short_to_be_seen_is_refused_with_the_bound() -> None:
    assert story(SHORTEST_S)
    with pytest.raises(ValueError, match=r"59 s is too short.*at least 60 s"):
        story(SHORTEST_S - 1.0)


def test_what_follows_has_no_end_and_breaks_nothing() -> None:
    after = open_end(story(300.0))
    assert after.from_s == 300.0
    assert math.isinf(after.to_s)
    assert after.deed is Deed.NOTHING


def test_names_are_unique_so_that_a_report_can_be_keyed_by_them() -> None:
    names = [phase.name for phase in story(300.0)]
    assert len(set(names)) == len(names)
