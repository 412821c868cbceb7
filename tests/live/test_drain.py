"""Capacity goes back with real parts: no stream is cut, none is lost, and what is cut is said."""

from __future__ import annotations

import pytest

from controlplane.domain.gateway import ServerState
from tests.live.moving import GUEST, LULL, Dock, dock_open
from tests.support import eventually

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("live")]

TOKENS = 800
"""Some seconds of an answer: longer than it takes to decide and to close."""

ENDLESS = 100_000
"""As good as without an end."""


def closing(dock: Dock) -> None:
    """The surge is over, and the loop has closed the guest at the door."""
    assert dock.at_door().state is ServerState.OPEN
    dock.load = LULL
    eventually(lambda: dock.tick() and dock.at_door().state is ServerState.CLOSED, 10, every_s=0.1)


def test_what_was_borrowed_goes_back_once_its_streams_have_ended_and_none_is_cut() -> None:
    with dock_open() as dock:
        dock.borrow()
        held = dock.begin_on(GUEST, 3, TOKENS)
        closing(dock)
        assert not any(each.heard.done() for each in held)
        assert dock.twin.phase(GUEST) == "serving"
        assert GUEST not in {dock.begin(4).slot for _ in range(6)}, "nothing new reaches it"
        looks = watched_to_the_end(dock)
        assert looks >= 3, "the drain was seen while it lasted"
        assert dock.ledger.lent, "the loan stands for as long as its GPUs are held"
        dock.until("asleep")
        eventually(lambda: dock.tick() and not dock.ledger.lent, 10, every_s=0.1)
        every_stream_is_whole(dock)
        assert dock.twin.json("/truth")["evicted_requests"].get(GUEST, 0) == 0


def watched_to_the_end(dock: Dock) -> int:
    """Cycles until the door counts nothing open there; how many of them saw that it still stands."""
    looks = 0

    def ended() -> bool:
        nonlocal looks
        dock.tick()
        phase, open_ = dock.twin.phase(GUEST), dock.at_door().in_flight
        assert not open_ or phase == "serving"
        assert not dock.ordered_down() or not open_
        looks += bool(open_)
        return not open_

    eventually(ended, 40, every_s=0.1)
    return looks


def every_stream_is_whole(dock: Dock) -> None:
    """By the caller's own hash and by the twin's."""
    heard = {each.name: each.heard.result(20) for each in dock.streams}
    assert [name for name, each in heard.items() if not each.complete] == []
    told = dock.written()
    assert told == {name: {"sha256": each.sha256, "complete": True} for name, each in heard.items()}


def test_a_drain_waits_no_longer_than_its_policy_says_and_what_it_cuts_is_on_record() -> None:
    with dock_open(drain_s=3.0) as dock:
        dock.borrow()
        held = dock.begin_on(GUEST, 1, ENDLESS)
        closing(dock)
        dock.until("asleep")
        assert dock.waited_s() >= 3.0
        assert {each.heard.result(20).complete for each in held} == {False}
        assert {dock.written()[each.name]["complete"] for each in held} == {False}
        assert {each.code for each in dock.ordered_down()} == {"move_cut"}
        assert dock.twin.json("/truth")["evicted_requests"][GUEST] == len(held)
        eventually(lambda: dock.tick() and not dock.ledger.lent, 10, every_s=0.1)


def test_a_gateway_that_dies_during_a_drain_is_closed_again_before_the_instance_is_ended() -> None:
    """It comes back from a file in which the guest is open, and its new process counts nothing there."""
    with dock_open() as dock:
        dock.borrow()
        held = dock.begin_on(GUEST, 1, ENDLESS)
        closing(dock)
        dock.shut_door()
        assert {each.heard.result(20).complete for each in held} == {False}, "they died with the gateway"
        dock.open_door()
        assert (dock.at_door().state, dock.at_door().in_flight) == (ServerState.OPEN, 0)
        dock.cycle()
        assert dock.at_door().state is ServerState.CLOSED
        assert (dock.ordered_down(), dock.twin.phase(GUEST)) == ([], "serving")
        dock.until("asleep")
        assert {each.code for each in dock.ordered_down()} == {"move_returns"}


def test_streams_of_a_reloaded_gateways_old_worker_are_not_cut_although_the_new_one_counts_none() -> None:
    with dock_open("-W") as dock:
        dock.borrow()
        held = dock.begin_on(GUEST, 2, TOKENS)
        closing(dock)
        dock.reload_door()
        assert (dock.at_door().state, dock.at_door().in_flight) == (ServerState.OPEN, 0)
        dock.cycle()
        assert dock.at_door().state is ServerState.CLOSED
        assert not any(each.heard.done() for each in held)
        dock.until("asleep", 40)
        every_stream_is_whole(dock)
