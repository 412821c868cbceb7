"""Between plan and effect the world may have changed: what no longer fits is left, and it is said why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.domain.observation import Hold
from controlplane.domain.plan import ActionState
from tests.builders import NOW
from tests.loop.world import CHAT, SLOW, World

OTHER_POOL = Hold("vision", "ann", "elsewhere", NOW)  # type: ignore[arg-type]


def slowed() -> World:
    world = World().settled()
    world.speed = SLOW
    return world


def lost_lease(world: World) -> None:
    world.lease.ours = False


def told_to_stop(world: World) -> None:
    world.stopping = True


def pool_held(world: World) -> None:
    world.ledger.people.append(Hold(CHAT, "ann", "incident 7", world.clock.now))


def fleet_held(world: World) -> None:
    world.ledger.people.append(Hold(None, "bob", "power cut", world.clock.now))


def gateway_restarted(world: World) -> None:
    world.gateway.restart()


def gateway_gone(world: World) -> None:
    world.gateway.reads.unavailable()


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (lost_lease, "the lease is not ours any more"),
        (told_to_stop, "the controller was told to stop"),
        (pool_held, "ann placed a hold meanwhile: incident 7"),
        (fleet_held, "bob placed a hold meanwhile: power cut"),
        (gateway_restarted, "gateway edge was restarted meanwhile"),
        (gateway_gone, "gateway edge did not answer on the second look"),
    ],
)
def test_what_no_longer_fits_is_abandoned_with_its_reason_and_not_sent(
    meanwhile: Callable[[World], None], reason: str
) -> None:
    world = slowed()
    world.ledger.then["record"] = lambda: meanwhile(world)
    report = world.cycle()
    assert report.outcomes
    assert set(report.outcomes.values()) == {(ActionState.ABANDONED, reason)}
    assert {world.ledger.states[id_] for id_ in report.outcomes} == {(ActionState.ABANDONED, reason)}
    assert world.gateway.sent == []


@pytest.mark.parametrize("meanwhile", [lambda _: None, lambda world: world.ledger.people.append(OTHER_POOL)])
def test_what_still_fits_is_sent(meanwhile: Callable[[World], None]) -> None:
    world = slowed()
    world.ledger.then["record"] = lambda: meanwhile(world)
    report = world.cycle()
    assert {state for state, _ in report.outcomes.values()} == {ActionState.APPLIED}
    assert world.gateway.sent


def test_of_several_levels_only_the_one_that_moved_is_abandoned() -> None:
    world = slowed()
    seen = world.server(4).weight
    world.ledger.then["record"] = lambda: world.meddle(4, weight=11)
    report = world.cycle()
    states = {state for state, _ in report.outcomes.values()}
    assert states == {ActionState.ABANDONED, ActionState.APPLIED}
    left = [reason for state, reason in report.outcomes.values() if state is ActionState.ABANDONED]
    assert left == [f"set_weight stood at {seen} and stands at 11 now"]
    assert world.server(4).weight == 11
    world.cycle()
    assert world.server(4).weight != 11


def test_a_hold_that_was_known_before_is_no_surprise() -> None:
    """Drift is still put back while a person holds the pool: the plan took that hold into account."""
    world = World().settled()
    world.ledger.people.append(Hold(CHAT, "ann", "incident 7", NOW))
    before = world.server(2)
    world.meddle(2, weight=3)
    report = world.cycle()
    assert {state for state, _ in report.outcomes.values()} == {ActionState.APPLIED}
    assert world.server(2) == before


def test_a_hold_that_was_lifted_and_placed_anew_is_a_new_one() -> None:
    world = World().settled()
    first = Hold(CHAT, "ann", "incident 7", NOW)
    world.ledger.people.append(first)
    world.meddle(2, weight=3)
    anew = replace(first, author="bob", reason="hands off", since=NOW + 1.0)
    world.ledger.then["record"] = lambda: world.ledger.people.__setitem__(0, anew)
    report = world.cycle()
    assert set(report.outcomes.values()) == {
        (ActionState.ABANDONED, "bob placed a hold meanwhile: hands off")
    }


def test_a_person_who_holds_a_pool_twice_in_one_instant_is_heard_by_author() -> None:
    """Two people may hold one pool at once; the second one's word counts although the instant is the same."""
    world = World().settled()
    world.ledger.people.append(Hold(CHAT, "ann", "incident 7", NOW))
    world.meddle(2, weight=3)
    world.ledger.then["record"] = lambda: world.ledger.people.append(Hold(CHAT, "bob", "wait", NOW))
    assert {state for state, _ in world.cycle().outcomes.values()} == {ActionState.ABANDONED}


def test_abandoned_is_an_ordinary_outcome_and_the_next_cycle_does_it() -> None:
    world = slowed()
    weight = world.server(4).weight
    world.ledger.then["record"] = lambda: gateway_gone(world)
    world.cycle()
    assert world.server(4).weight == weight
    assert not world.cycle().failure
    assert world.server(4).weight < weight
