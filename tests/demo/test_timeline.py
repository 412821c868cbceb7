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


@pytest.mark.parametrize("duration_s", [SHORTEST_S, 90.0, 300.0])
def test_the_throttle_comes_before_all_four_failures(duration_s: float) -> None:
    deeds = [phase.deed for phase in story(duration_s) if phase.deed is not Deed.NOTHING]
    assert deeds == [Deed.THROTTLE, *FAILURES]


def test_between_two_failures_there_is_time_to_recover() -> None:
    phases = story(90.0)
    places = [number for number, phase in enumerate(phases) if phase.deed in FAILURES]
    for one, next_one in itertools.pairwise(places):
        assert next_one - one == 2
        assert phases[one + 1].deed is Deed.NOTHING


def test_in_ninety_seconds_a_changed_target_list_has_time_to_show() -> None:
    """Prometheus looks at its lists every 5 s."""
    for phase in story(90.0):
        if phase.deed in {Deed.EMPTY, Deed.HALF}:
            assert phase.to_s - phase.from_s > 7.0


def test_a_story_too_short_to_be_seen_is_refused_with_the_bound() -> None:
    assert story(SHORTEST_S)
    with pytest.raises(ValueError, match=r"39 s is too short.*at least 40 s"):
        story(SHORTEST_S - 1.0)


def test_what_follows_has_no_end_and_breaks_nothing() -> None:
    after = open_end(story(300.0))
    assert after.from_s == 300.0
    assert math.isinf(after.to_s)
    assert after.deed is Deed.NOTHING


def test_names_are_unique_so_that_a_report_can_be_keyed_by_them() -> None:
    names = [phase.name for phase in story(300.0)]
    assert len(set(names)) == len(names)
