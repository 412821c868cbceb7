"""The course of a day, and traffic that follows it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.traffic.course import (
    BURSTS,
    DAY_SWING,
    FLASH_AT,
    FLASH_HALF_LIFE,
    FLASH_RISE,
    day,
    diurnal,
    flash,
    on_off,
    steady,
    swing,
)
from controlplane.traffic.seeded import SHAPES, seeded_trace
from controlplane.traffic.trace import Floats

AT = np.linspace(0.0, 1.0, 10_001)
DAY_S = 86_400.0


def test_a_day_swings_twenty_times_between_midnight_and_noon() -> None:
    rate = diurnal(AT)
    assert rate.max() / rate.min() == pytest.approx(DAY_SWING)
    assert AT[rate.argmax()] == 0.5
    assert rate[0] == pytest.approx(rate[-1]) == pytest.approx(rate.min())


def test_a_flash_crowd_is_not_there_before_whole_twenty_minutes_later_and_half_after_twenty_more() -> None:
    moments = np.array([FLASH_AT - 1e-9, FLASH_AT + FLASH_RISE, FLASH_AT + FLASH_RISE + FLASH_HALF_LIFE])
    assert flash(moments) == pytest.approx([0.0, 1.0, 0.5])


@pytest.mark.parametrize("course", [day, diurnal, flash, on_off, steady, swing(0.3), swing(1.0)])
@given(at=st.floats(0.0, 1.0))
def test_a_rate_is_never_negative(course, at: float) -> None:  # type: ignore[no-untyped-def]
    assert course(np.array([at]))[0] >= 0.0


def counted(shape: str, bins: int, seed: int = 3, rate: float = 5.0) -> Floats:
    """Requests by bin of a day."""
    trace = seeded_trace(SHAPES[shape], DAY_S, seed, rate)
    return np.histogram(trace.arrival_s, bins, (0.0, DAY_S))[0].astype(np.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_traffic_follows_the_day_within_what_chance_allows(seed: int) -> None:
    """A Gamma renewal count over n expected has a variance of about cv^2 n."""
    bins = 48
    edges = np.linspace(0.0, 1.0, 480 * bins + 1)
    relative = day((edges[1:] + edges[:-1]) / 2).reshape(bins, -1).mean(axis=1)
    expected = relative / relative.mean() * 5.0 * DAY_S / bins
    deviation = SHAPES["day"].cv * np.sqrt(expected)
    assert np.all(np.abs(counted("day", bins, seed) - expected) < 5.0 * deviation)


def test_a_flash_crowd_shows_in_the_traffic_and_goes() -> None:
    """By ten minutes: what comes in the rise, against what the evening had just before and long after."""
    requests = counted("day", 144)
    before, top, after = requests[106], requests[110], requests[125]
    assert top > 2.0 * before
    assert after < 0.5 * before


def test_between_its_bursts_batch_work_sends_nothing_at_all() -> None:
    arrival = seeded_trace(SHAPES["batch"], DAY_S, 1, 2.0).arrival_s
    on = on_off(arrival / DAY_S)
    assert np.mean(on) > 0.999, "but for the width of a step of the grid"
    gaps = [later - earlier for earlier, later in pairwise(arrival)]
    assert sum(gap > 0.7 * DAY_S / BURSTS for gap in gaps) == BURSTS - 1


def test_a_day_in_ten_minutes_has_the_same_course() -> None:
    short = seeded_trace(SHAPES["day"], 600.0, 1, 40.0).arrival_s
    by_bin = np.histogram(short, 24, (0.0, 600.0))[0]
    assert by_bin[11:13].mean() / by_bin[[0, 23]].mean() == pytest.approx(16.0, rel=0.3)
