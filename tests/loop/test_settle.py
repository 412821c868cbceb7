"""What became of it: failed and unknown effects are settled by looking, never by sending again blindly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.fleet import Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import InstanceId
from controlplane.domain.plan import ActionKind, ActionState
from controlplane.ports import OutcomeUnknown, Refused, Unavailable
from tests.builders import gateway as view_of
from tests.builders import instances, inventory, server
from tests.loop.world import CHAT, SLOW, World


def slowed() -> World:
    world = World().settled()
    world.speed = SLOW
    return world


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Unavailable("no such socket"), ActionState.FAILED),
        (Refused("no such server"), ActionState.REFUSED),
        (OutcomeUnknown("no answer"), ActionState.UNKNOWN),
    ],
)
def test_an_effect_that_did_not_come_about_is_recorded_as_what_it_is(
    error: Exception, state: ActionState
) -> None:
    world = slowed()
    weight = world.server(4).weight
    world.gateway.writes.then(error)
    report = world.cycle()
    assert set(report.outcomes.values()) == {(state, str(error))}
    assert {world.ledger.states[id_] for id_ in report.outcomes} == {(state, str(error))}
    assert world.server(4).weight == weight
    world.cycle()
    assert world.server(4).weight < weight


def test_the_next_cycle_plans_from_what_is_not_from_what_was_sent() -> None:
    world = slowed()
    found = world.server(4).weight
    world.gateway.writes.unavailable()
    world.cycle()
    world.gateway.sent.clear()
    world.cycle()
    seen = {
        action.seen for _, action in world.gateway.sent if action.instance == world.members[3].instance_id
    }
    assert found in seen


def test_an_unanswered_effect_that_landed_is_settled_as_applied_and_not_sent_again() -> None:
    world = slowed()
    world.gateway.lands_when_unknown = True
    world.gateway.writes.then(OutcomeUnknown("no answer"))
    report = world.cycle()
    landed = dict(world.gateway.sent)
    assert {world.ledger.states[id_][0] for id_ in landed} == {ActionState.UNKNOWN}
    world.gateway.sent.clear()
    world.speed = tuple(world.loop._state.pools[CHAT].speeds.values()) if world.loop._state else SLOW
    world.cycle()
    assert {world.ledger.states[id_] for id_ in report.outcomes} == {
        (ActionState.APPLIED, f"seen at {action.level} afterwards") for action in landed.values()
    }
    again = {(each.kind, each.instance, each.level) for _, each in world.gateway.sent}
    assert not again & {(each.kind, each.instance, each.level) for each in landed.values()}


def test_an_unanswered_effect_that_did_not_land_is_settled_as_failed() -> None:
    world = slowed()
    world.gateway.writes.then(OutcomeUnknown("no answer"))
    lost = world.cycle().outcomes
    assert {state for state, _ in lost.values()} == {ActionState.UNKNOWN}
    world.cycle()
    assert {world.ledger.states[id_][0] for id_ in lost} == {ActionState.FAILED}


@pytest.mark.parametrize(("lands", "state"), [(True, ActionState.APPLIED), (False, ActionState.FAILED)])
def test_an_unanswered_removal_is_settled_by_whether_the_server_is_still_there(
    lands: bool, state: ActionState
) -> None:
    world = World().settled()
    first, *others = world.members
    world.members = (replace(first, phase=Phase.GONE), *others)
    world.orchestrator.now = inventory(world.members)
    world.cycle()
    assert world.server(1).state is ServerState.CLOSED
    world.gateway.lands_when_unknown = lands
    world.gateway.writes.then(OutcomeUnknown("no answer"))
    (lost,) = world.cycle().outcomes
    assert world.ledger.states[lost][0] is ActionState.UNKNOWN
    world.cycle()
    assert world.ledger.states[lost][0] is state
    assert first.instance_id not in world.gateway.servers[CHAT]


def test_what_cannot_be_looked_at_stays_unknown_for_another_cycle() -> None:
    world = slowed()
    world.gateway.writes.then(OutcomeUnknown("no answer"))
    lost = world.cycle().outcomes
    world.gateway.reads.unavailable(times=2)
    world.cycle()
    assert {world.ledger.states[id_][0] for id_ in lost} == {ActionState.UNKNOWN}
    world.gateway.reads.then()
    world.cycle()
    world.cycle()
    assert ActionState.UNKNOWN not in world.states()


def test_a_controller_that_died_between_record_and_effect_is_settled_by_the_next_one() -> None:
    """The record says applying, nobody knows whether it was sent: the gateway is asked, not told."""

    def dies() -> None:
        raise SystemExit

    world = slowed()
    world.ledger.then["record"] = dies
    with pytest.raises(SystemExit):
        world.cycle()
    open_ = [id_ for id_, (state, _) in world.ledger.states.items() if state is ActionState.APPLYING]
    assert open_
    assert world.gateway.sent == []
    world.loop = world.restarted()
    world.cycle()
    assert {world.ledger.states[id_][0] for id_ in open_} == {ActionState.FAILED}
    assert world.journal.index("settle") < world.journal.index("record")
    assert world.server(4).weight < world.server(1).weight


def test_a_restarted_gateway_is_repaired_within_one_cycle() -> None:
    """Weights and limits that it lost are drift like any other."""
    world = slowed()
    for _ in range(8):
        world.cycle()
    before = dict(world.gateway.servers[CHAT])
    world.gateway.sent.clear()
    assert world.cycle().outcomes == {}
    world.gateway.restart()
    assert world.gateway.servers[CHAT] != before
    world.cycle()
    assert world.gateway.servers[CHAT] == before


def test_a_level_that_somebody_else_changed_is_put_back_within_one_cycle() -> None:
    world = World().settled()
    before = world.server(2)
    world.meddle(2, weight=3, limit=1)
    world.cycle()
    assert world.server(2) == before
    assert world.levels(ActionKind.SET_WEIGHT) == {before.instance_id: before.weight}


def test_servers_that_are_not_ours_are_left_alone() -> None:
    world = World().settled()
    stranger = replace(world.server(1), instance_id=InstanceId("demo/canary@000000"), weight=7, limit=3)
    world.gateway.put(CHAT, stranger)
    world.speed = SLOW
    for _ in range(3):
        world.cycle()
    assert world.gateway.servers[CHAT][stranger.instance_id] == stranger
    assert world.gateway.sent
    assert stranger.instance_id not in {action.instance for _, action in world.gateway.sent}


def test_an_unknown_gateway_name_is_refused_and_the_others_are_served() -> None:
    world = slowed()
    world.cycle()
    outcomes = world.loop._apply("nowhere", [next(iter(world.gateway.sent))])
    assert set(outcomes.values()) == {(ActionState.REFUSED, "no gateway is called nowhere")}


def test_a_level_of_a_server_that_the_gateway_does_not_know_is_not_there() -> None:
    """ABSENT has no level: zero would look like one that was set. Membership is what it does have."""
    from controlplane.loop.second_look import level

    one = instances(1)[0]
    known = view_of([server(one, weight=5, limit=9)]).backends[0].servers[0]
    kinds = (ActionKind.SET_WEIGHT, ActionKind.SET_LIMIT, ActionKind.OPEN, ActionKind.CLOSE)
    assert [level(known, kind) for kind in kinds] == [5, 9, 1, 1]
    closed = replace(known, state=ServerState.CLOSED)
    assert [level(closed, kind) for kind in kinds] == [5, 9, 0, 0]
    absent = replace(known, state=ServerState.ABSENT)
    assert [level(absent, kind) for kind in kinds] == [None] * 4
    assert level(known, ActionKind.SET_INSTANCES) is None
    assert level(None, ActionKind.SET_WEIGHT) is None
    for kind in (ActionKind.ADD, ActionKind.REMOVE):
        assert [level(row, kind) for row in (known, closed, absent, None)] == [1, 1, 0, 0]
