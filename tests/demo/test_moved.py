"""What the report says of capacity that moved."""

from __future__ import annotations

from typing import Any

from controlplane.adapters.sql.pagelist import Page, PageId
from controlplane.adapters.sql.reader import Lent
from controlplane.demo import moved
from controlplane.demo.act import Mark
from controlplane.demo.fleet import BORROWED
from controlplane.demo.timeline import story
from controlplane.domain.ids import CycleId, CycleKind, DecisionId, InstanceId, NodeId, PoolName
from controlplane.domain.loans import BUFFER, Loan
from controlplane.ports import PageStatus
from controlplane.traffic.results import Outcome, Result

T0 = 1_000_000.0
SURGE = next(phase for phase in story(100.0) if phase.name == "surge")
MARK = Mark(SURGE, T0, T0 + 16.0, T0)


def lent(closed_at: float | None) -> Lent:
    instance = InstanceId("demo/chat-8b-s01@a")
    loan = Loan("l", BUFFER, PoolName("chat-8b"), instance, NodeId("n"), 1, T0, "present_need")
    return Lent(loan, "d1", closed_at, "d2" if closed_at else None, None)


def page(status: PageStatus, resolved_at: float | None = None) -> Page:
    decision = DecisionId(CycleId("demo", CycleKind.CAPACITY, 7), PoolName("chat-8b"))
    return Page(
        PageId("demo", "f", T0 + 5.0),
        "P95OverTarget",
        "page",
        "chat-8b",
        {},
        "late",
        "runbook",
        status,
        T0 + 6.0,
        T0 + 7.0,
        resolved_at,
        3,
        decision,
    )


def result(at_s: float, ttft_s: float | None, instance: str = "chat-8b-01", **changes: Any) -> Result:
    outcome = changes.get("outcome", Outcome.OK)
    return Result(at_s, T0 + at_s, "llama-3.1-8b", 200, outcome, ttft_s, 9.0, 5, instance, 0.0, 10, 5, None)


def test_a_loan_counts_as_open_until_it_is_closed() -> None:
    assert moved.loans([]) == {"opened": 0, "closed": 0, "open": 0}
    assert moved.loans([lent(None), lent(None)]) == {"opened": 2, "closed": 0, "open": 2}
    assert moved.loans([lent(T0 + 9), lent(None)]) == {"opened": 2, "closed": 1, "open": 1}


def test_a_stream_that_online_work_lost_is_cut_and_one_of_offline_work_is_given_up() -> None:
    truth = {
        "lives": [
            {"instance_id": "demo/chat-8b-s01@a", "phase": "draining"},
            {"instance_id": "demo/batch-eval-01@a", "phase": "draining"},
            {"instance_id": "demo/chat-8b-s01@a", "phase": "gone"},
        ],
        "evicted_requests": {"batch-eval-01": 4, "chat-8b-s01": 1},
    }
    assert moved.drains(truth, ["chat-8b"]) == {"n": 1, "streams_cut": 1, "offline_given_up": 4}


def test_where_the_twin_said_nothing_no_drain_is_known() -> None:
    assert moved.drains({}, ["chat-8b"]) == {"n": None, "streams_cut": None, "offline_given_up": None}


def test_a_page_fires_once_however_often_it_is_told_and_then_resolves() -> None:
    assert moved.pages([page(PageStatus.FIRING)]) == {"fired": 1, "resolved": 0}
    assert moved.pages([page(PageStatus.RESOLVED, T0 + 40.0)]) == {"fired": 1, "resolved": 1}


def test_a_page_is_told_with_its_decision_and_in_seconds_from_the_surge() -> None:
    told = moved.paged([page(PageStatus.RESOLVED, T0 + 40.0)], MARK)[0]
    assert (told["began_after_s"], told["ended_after_s"], told["notifications"]) == (5.0, 40.0, 3)
    assert told["decision"] == "demo:capacity:7:chat-8b"


def test_a_page_without_a_surge_has_no_time_from_it() -> None:
    told = moved.paged([page(PageStatus.FIRING)], None)[0]
    assert told["began_after_s"] is None


def test_the_surge_counts_from_the_first_late_caller_to_the_first_borrowed_answer() -> None:
    """A caller is late when his target has passed, and answered when his first token comes."""
    results = [
        result(-2.0, 5.0),  # before the crowd: not its doing
        result(1.0, 0.2),
        result(2.0, 4.0),  # late at 3
        result(3.0, 3.5, f"{BORROWED}01"),  # answered at 6.5
        result(3.5, 4.0, f"{BORROWED}02"),
        result(0.5, 0.1, f"{BORROWED}03", outcome=Outcome.FAILED),
    ]
    assert moved.surge(results, MARK, BORROWED, 1.0) == {
        "first_late_s": 3.0,
        "first_borrowed_answer_s": 6.5,
        "late_to_borrowed_s": 3.5,
    }


def test_a_surge_that_nobody_was_late_in_has_no_such_time() -> None:
    found = moved.surge([result(1.0, 0.2, f"{BORROWED}01")], MARK, BORROWED, 1.0)
    assert found == {"first_late_s": None, "first_borrowed_answer_s": 1.2, "late_to_borrowed_s": None}
    assert moved.surge([], MARK, BORROWED, 1.0)["late_to_borrowed_s"] is None
    assert moved.surge([], None, BORROWED, 1.0) == {}
