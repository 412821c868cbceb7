"""What may be acted upon, and with which cause not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controlplane.domain import trust
from controlplane.domain.fleet import Phase
from controlplane.domain.policy import EvidencePolicy
from controlplane.domain.readings import CAUSES, Cause, Column, Known, Missing, PoolSignal, Reading, Signal
from tests.builders import MIX, NOW, instance, profile

EVIDENCE = EvidencePolicy(max_age_s=60.0)


def causes(column: Column) -> list[Cause]:
    return [CAUSES[code] for code in column.cause.tolist()]


def test_a_reading_is_used_up_to_its_maximum_age_and_not_beyond() -> None:
    """B-013: freshness comes from the sample's own time."""
    judged = trust.fresh(Column.of([Known(1.0, NOW - 60.0), Known(1.0, NOW - 60.1)]), NOW, 60.0)
    assert causes(judged) == [Cause.NONE, Cause.STALE]
    assert judged[1] == Missing(Cause.STALE)


def test_a_sample_from_the_future_is_a_clock_that_disagrees() -> None:
    judged = trust.fresh(Column.of([Known(1.0, NOW + 5.0), Known(1.0, NOW + 5.1)]), NOW, 60.0)
    assert causes(judged) == [Cause.NONE, Cause.CLOCK_SKEW]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_a_number(bad: float) -> None:
    """B-001."""
    assert causes(trust.fresh(Column.of([Known(bad, NOW), Known(0.0, NOW)]), NOW, 60.0)) == [
        Cause.NOT_FINITE,
        Cause.NONE,
    ]


@pytest.mark.parametrize(
    ("signal", "good", "bad"),
    [
        (Signal.SM_ACTIVE, 1.0, 1.01),
        (Signal.GPU_UTILISATION, 0.0, 4294967295.0),
        (Signal.RUNNING, 256.0, 257.0),
        (Signal.GENERATION_TOKENS, 9000.0, 60_000.0),
        (Signal.WAITING, 1e6, -1.0),
    ],
)
def test_what_no_instance_can_do_was_not_measured(signal: Signal, good: float, bad: float) -> None:
    """B-006, B-007, B-044: dropped, and not clamped to the nearest possible value."""
    judged = trust.within_physics(signal, Column.of([Known(good, NOW), Known(bad, NOW)]), profile(), MIX)
    assert causes(judged) == [Cause.NONE, Cause.OUT_OF_RANGE]


def test_who_is_silent_by_nature_does_not_dilute_coverage() -> None:
    """B-018: loading, draining, unreachable and gone instances, and those that have just begun."""
    members = [
        instance("a"),
        *(replace(instance(f"b{each}"), phase=each) for each in Phase if each is not Phase.SERVING),
        instance("c", ready_at=NOW - 1.0),
    ]
    assert trust.expected(members, NOW, 60.0).tolist() == [True] + [False] * len(Phase)


def test_having_had_nothing_to_do_is_an_answer() -> None:
    """B-002: no traffic is not missing; a failed scrape is."""
    column = Column.of([Missing(Cause.NO_TRAFFIC), Missing(Cause.UNSEEN), Known(1.0, NOW)])
    covered = trust.coverage(column, np.ones(3, dtype=np.bool_))
    assert (covered.seen, covered.expected) == (2, 3)


def test_where_nobody_should_report_nothing_is_missing() -> None:
    assert trust.Coverage(0, 0).share == 1.0


@pytest.mark.parametrize(
    ("reading", "cause"),
    [
        (Known(float("nan"), NOW), Cause.NOT_FINITE),
        (Known(-1.0, NOW), Cause.OUT_OF_RANGE),
        (Known(1.0, NOW - 61.0), Cause.STALE),
        (Known(1.0, NOW + 6.0), Cause.CLOCK_SKEW),
        (Missing(Cause.EMPTY), Cause.EMPTY),
    ],
)
def test_a_pools_reading_is_judged_like_an_instances(reading: Reading, cause: Cause) -> None:
    judged = trust.trusted_reading(PoolSignal.ARRIVALS, reading, NOW, EVIDENCE, gap=False)
    assert isinstance(judged, Missing)
    assert judged.cause is cause


def test_a_window_that_reaches_into_a_gap_is_not_used_and_a_gauge_is() -> None:
    """B-024."""
    known = Known(1.0, NOW)
    rate = trust.trusted_reading(PoolSignal.ARRIVALS, known, NOW, EVIDENCE, gap=True)
    gauge = trust.trusted_reading(PoolSignal.GATEWAY_QUEUE, known, NOW, EVIDENCE, gap=True)
    assert rate == Missing(Cause.WINDOW_TOO_SHORT, "the window reaches into a gap")
    assert gauge == known


def test_more_arrivals_than_can_be_accounted_for_are_a_false_reset() -> None:
    """B-044. A flash crowd is not one: its requests stand in the queue and in flight."""
    calm = {
        PoolSignal.COMPLETIONS: Known(10.0, NOW),
        PoolSignal.REFUSALS: Known(0.0, NOW),
        PoolSignal.GATEWAY_QUEUE: Known(0.0, NOW),
        PoolSignal.GATEWAY_IN_FLIGHT: Known(60.0, NOW),
        PoolSignal.CANCELLED_RATIO: Known(0.0, NOW),
    }
    spike = {**calm, PoolSignal.ARRIVALS: Known(1000.0, NOW)}
    crowd = {
        **calm,
        PoolSignal.ARRIVALS: Known(100.0, NOW),
        PoolSignal.GATEWAY_QUEUE: Known(5000.0, NOW),
    }
    judged = trust.conserved_arrivals(spike, 15.0)
    assert isinstance(judged, Missing)
    assert judged.cause is Cause.OUT_OF_RANGE
    assert trust.conserved_arrivals(crowd, 15.0) == Known(100.0, NOW)
    assert trust.conserved_arrivals({PoolSignal.ARRIVALS: Known(1000.0, NOW)}, 15.0) == Known(1000.0, NOW)


def test_an_unseen_suspect_keeps_its_evidence_and_a_moving_one_is_cleared() -> None:
    work = trust.Work(np.zeros(2), np.array([5.0, 5.0]), np.ones(2, dtype=np.bool_))
    running = Column.of([Known(1.0, NOW)] * 2)
    first = trust.suspects(Column.of([Known(0.0, NOW)] * 2), running, work, {}, NOW)
    progress = Column.of([Missing(Cause.UNSEEN), Known(3.0, NOW)])
    later = trust.suspects(progress, running, work, first, NOW + 9.0)
    assert later == {0: first[0]}
