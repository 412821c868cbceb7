"""The stand-ins behave as the ports promise, so that a test of the loop meets no surprise later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.adapters.memory.gateway import MemoryGateway, PoolTraffic
from controlplane.adapters.memory.metrics import SILENCE, MemoryMetrics
from controlplane.adapters.memory.orchestrator import MemoryOrchestrator
from controlplane.domain.fleet import Inventory
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import SourceHealth
from controlplane.domain.plan import ActionKind, ActionState
from controlplane.ports import (
    Gateway,
    MetricsAnswer,
    MetricsSource,
    Orchestrator,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from tests.adapters.gateways.conftest import POOL, Door, SystemClock, action, instance_id
from tests.builders import policies


@pytest.fixture
def memory() -> MemoryGateway:
    return MemoryGateway.of(
        "door", SystemClock(), {POOL: [instance_id("s1"), instance_id("s2")]}, weight=100, limit=2
    )


@pytest.fixture(params=["memory", pytest.param("haproxy", marks=pytest.mark.real)])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    """The same gateway twice: two servers, weight 100, limit 2."""
    if request.param == "memory":
        found: Gateway = request.getfixturevalue("memory")
        return found
    door: Door = request.getfixturevalue("door")
    return door.gateway


def test_stand_in_and_haproxy_answer_one_story_alike(gateway: Gateway) -> None:
    """The same actions, the same states, the same view afterwards."""
    batch = [
        action(ActionKind.SET_WEIGHT, "s1", 37, ordinal=0),
        action(ActionKind.SET_WEIGHT, "s2", 100, ordinal=1),
        action(ActionKind.SET_LIMIT, "s1", 0, ordinal=2),
        action(ActionKind.SET_LIMIT, "s2", 7, ordinal=3),
        action(ActionKind.CLOSE, "s2", 0, ordinal=4),
        action(ActionKind.SET_WEIGHT, "s9", 5, ordinal=5),
    ]
    before = gateway.read()
    outcomes = gateway.apply(batch)
    assert [outcomes[id_][0] for id_, _ in batch] == [
        ActionState.APPLIED,
        ActionState.UNCHANGED,
        ActionState.REFUSED,
        ActionState.APPLIED,
        ActionState.APPLIED,
        ActionState.FAILED,
    ]
    after = gateway.read()
    assert [(one.weight, one.limit, one.state) for one in after.backends[0].servers] == [
        (37, 2, ServerState.OPEN),
        (100, 7, ServerState.CLOSED),
    ]
    assert (after.epoch, after.gateway) == (before.epoch, "door")


def test_stand_in_and_haproxy_let_members_come_and_go_alike(gateway: Gateway) -> None:
    """Removed when closed and idle, added closed and small, and given its levels in the same batch."""

    def told(*batch: tuple[ActionKind, str, int]) -> list[ActionState]:
        wanted = [action(*one, ordinal=number) for number, one in enumerate(batch)]
        outcomes = gateway.apply(wanted)
        return [outcomes[id_][0] for id_, _ in wanted]

    def shown(slot: str) -> tuple[int, int, ServerState]:
        rows = {one.instance_id: one for one in gateway.read().backends[0].servers}
        one = rows[instance_id(slot)]
        return one.weight, one.limit, one.state

    add, remove = (ActionKind.ADD, "s1", 1), (ActionKind.REMOVE, "s1", 0)
    assert told(add, remove) == [ActionState.UNCHANGED, ActionState.FAILED]
    assert told((ActionKind.CLOSE, "s1", 0)) == [ActionState.APPLIED]
    assert (told(remove), told(remove)) == ([ActionState.APPLIED], [ActionState.UNCHANGED])
    assert told((ActionKind.SET_WEIGHT, "s1", 5)) == [ActionState.FAILED]
    assert told(add) == [ActionState.APPLIED]
    assert shown("s1") == (1, 1, ServerState.CLOSED)
    assert told(remove) == [ActionState.APPLIED]
    levels = (ActionKind.OPEN, "s1", 1), (ActionKind.SET_LIMIT, "s1", 7), (ActionKind.SET_WEIGHT, "s1", 37)
    assert told(add, *levels) == [ActionState.APPLIED] * 4
    assert shown("s1") == (37, 7, ServerState.OPEN)
    assert shown("s2") == (100, 2, ServerState.OPEN)


def test_a_restart_forgets_levels_and_totals(memory: MemoryGateway) -> None:
    memory.apply([action(ActionKind.SET_WEIGHT, "s1", 37)])
    memory.traffic[POOL] = PoolTraffic(queue=3, arrivals=9)
    before = memory.read()
    assert (before.backends[0].servers[0].weight, before.backends[0].arrivals_total) == (37, 9)
    memory.restart()
    after = memory.read()
    assert after.epoch != before.epoch
    assert (after.backends[0].servers[0].weight, after.backends[0].arrivals_total) == (100, 0)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Unavailable("away"), ActionState.FAILED),
        (Refused("no"), ActionState.REFUSED),
        (OutcomeUnknown("silence"), ActionState.UNKNOWN),
    ],
)
def test_ordered_faults_reach_every_action_once_and_change_nothing(
    memory: MemoryGateway, error: Exception, state: ActionState
) -> None:
    one = action(ActionKind.SET_WEIGHT, "s1", 37)
    memory.writes.then(error)
    assert memory.apply([one]) == {one[0]: (state, str(error))}
    assert memory.read().backends[0].servers[0].weight == 100
    assert memory.apply([one])[one[0]][0] is ActionState.APPLIED


def test_an_unknown_write_may_have_landed(memory: MemoryGateway) -> None:
    memory.lands_when_unknown = True
    memory.writes.then(OutcomeUnknown("silence"))
    one = action(ActionKind.SET_WEIGHT, "s1", 37)
    assert memory.apply([one])[one[0]][0] is ActionState.UNKNOWN
    assert memory.read().backends[0].servers[0].weight == 37


def test_somebody_elses_hand_shows_in_the_next_reading(memory: MemoryGateway) -> None:
    server = memory.read().backends[0].servers[0]
    memory.put(POOL, replace(server, weight=3, in_flight=2))
    assert memory.read().backends[0].in_flight == 2
    assert memory.read().backends[0].servers[0].weight == 3


def test_reads_fail_as_often_as_ordered(memory: MemoryGateway) -> None:
    memory.reads.unavailable(2)
    for _ in range(2):
        with pytest.raises(Unavailable):
            memory.read()
    assert memory.read()
    memory.reads.down = "gone for good"
    with pytest.raises(Unavailable, match="gone for good"):
        memory.read()


def test_an_orchestrator_says_what_it_was_told() -> None:
    first, second = Inventory(1.0, (), ()), Inventory(2.0, (), ())
    told = MemoryOrchestrator(first)
    port: Orchestrator = told
    assert port.inventory() == first
    told.now = second
    told.faults.unavailable()
    with pytest.raises(Unavailable):
        port.inventory()
    assert (port.inventory(), told.calls) == (second, 3)


def test_a_metrics_script_is_followed_and_its_last_line_repeated() -> None:
    first = MetricsAnswer({}, {}, SourceHealth(queries=1))
    source = MemoryMetrics(
        [first, lambda _kind, _policies, now: replace(first, health=SourceHealth(int(now)))]
    )
    port: MetricsSource = source
    asked = [port.read(CycleKind.WEIGHTS, policies(), now) for now in (1.0, 2.0, 3.0)]
    assert [one.health.queries for one in asked] == [1, 2, 3]
    source.say(SILENCE)
    assert port.read(CycleKind.CAPACITY, policies(), 4.0).health.failures
    assert source.asked[-1] == (CycleKind.CAPACITY, 4.0)
