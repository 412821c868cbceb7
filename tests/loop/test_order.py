"""What is recorded is done, what cannot be recorded is not, and nothing is touched before."""

from __future__ import annotations

import pytest

from controlplane.domain.ids import CycleKind
from controlplane.domain.plan import ActionState, Outcome
from controlplane.ports import Unavailable
from tests.loop.world import CHAT, SLOW, World


def slowed() -> World:
    """A settled world in which the fourth instance has just become slow."""
    world = World().settled()
    world.speed = SLOW
    return world


def test_nothing_reaches_a_gateway_before_the_record_is_committed() -> None:
    world = slowed()
    report = world.cycle()
    assert report.plan is not None
    assert report.plan.decisions[CHAT].outcome is Outcome.CHANGE
    writes = [each for each in world.journal if each in {"record", "apply edge", "settle"}]
    assert writes == ["record", "apply edge", "settle"]
    assert world.server(4).weight < world.server(1).weight
    assert set(report.outcomes.values()) == {
        outcome for id_, outcome in world.ledger.states.items() if id_ in report.outcomes
    }


def test_the_second_look_comes_between_record_and_effect() -> None:
    world = slowed()
    world.cycle()
    after = world.journal[world.journal.index("record") :]
    assert after == ["record", "holds", "read edge", "apply edge", "settle"]


def test_a_steady_cycle_writes_a_record_and_touches_nothing() -> None:
    world = World().settled()
    report = world.cycle()
    assert not report.failure
    assert report.outcomes == {}
    assert "record" in world.journal
    assert "apply edge" not in world.journal
    assert world.gateway.sent == []


@pytest.mark.parametrize("method", ["next_seq", "holds", "record", "unknown_actions"])
def test_a_record_that_cannot_be_reached_stops_the_cycle_and_not_the_next(method: str) -> None:
    world = slowed()
    world.ledger.break_next(method, "the disk is full")
    report = world.cycle()
    assert report.failure == "the disk is full"
    assert (report.plan, report.outcomes, world.gateway.sent) == (None, {}, [])
    report = world.cycle()
    assert not report.failure
    assert world.gateway.sent


def test_a_first_state_that_cannot_be_read_is_asked_for_again() -> None:
    world = World()
    world.ledger.break_next("last_state")
    assert world.cycle().failure == "the record is gone"
    assert world.gateway.sent == []
    assert not world.cycle().failure


def test_an_error_without_words_is_named_by_its_kind() -> None:
    world = World()
    world.ledger.break_next("next_seq", "")
    assert world.cycle().failure == "Unavailable"


def test_memory_moves_on_only_with_a_commit() -> None:
    """A cycle that was not recorded never was: the next one starts from the state before it."""
    world = World().settled()
    before = world.ledger.records[-1].next_state
    world.speed = SLOW
    world.ledger.break_next("record")
    world.cycle()
    assert world.ledger.records[-1].next_state == before
    world.cycle()
    assert world.ledger.records[-1].frame.state == before
    assert world.ledger.records[-1].next_state != before
    world.cycle()
    assert world.ledger.records[-1].frame.state == world.ledger.records[-2].next_state


def test_a_new_controller_begins_with_the_recorded_state() -> None:
    world = slowed()
    world.cycle()
    world.loop = world.restarted()
    world.cycle()
    assert world.ledger.records[-1].frame.state == world.ledger.records[-2].next_state
    assert world.ledger.records[-1].frame.state.pools[CHAT].weights


def test_a_second_look_that_cannot_read_the_holds_sends_nothing() -> None:
    """The plan is recorded already; what is left applying is settled by the next observation."""
    world = slowed()
    world.ledger.then["record"] = lambda: world.ledger.break_next("holds")
    report = world.cycle()
    assert report.failure == "the record is gone"
    assert world.gateway.sent == []
    assert ActionState.APPLYING in world.states()
    world.cycle()
    assert ActionState.APPLYING not in world.states()
    assert world.server(4).weight < world.server(1).weight


def test_outcomes_that_cannot_be_written_are_told_as_what_they_are() -> None:
    """The levels were sent: a report that says "nothing was done" would be a lie."""
    world = slowed()
    world.ledger.break_next("settle", "the disk is full")
    report = world.cycle()
    assert world.gateway.sent
    assert report.plan is not None
    assert report.outcomes
    assert "the disk is full" in report.failure
    assert world.states()[ActionState.APPLYING] == len(report.outcomes)
    assert world.cycle(CycleKind.CAPACITY).failure == ""
    assert ActionState.APPLYING not in world.states()


def test_a_defect_is_not_swallowed_as_if_a_port_had_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().settled()
    world.orchestrator.faults.then(KeyError("pool"))
    with pytest.raises(KeyError):
        world.cycle()
    assert world.gateway.sent == []
    world.orchestrator.faults.then(Unavailable("away"))
    assert not world.cycle().failure
