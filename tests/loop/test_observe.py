"""What a cycle sees: the inventory's instances, and a cause for whatever did not arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.fleet import Instance, Inventory
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.observation import Hold, Observation, SourceHealth
from controlplane.domain.plan import Outcome
from controlplane.domain.readings import Cause, Known, Missing, Signal
from controlplane.loop.observe import Answers, assemble
from controlplane.ports import MetricsAnswer
from tests.builders import NOW, instance, instances, inventory
from tests.loop.world import CHAT, SLOW, World

HEALTH = SourceHealth(queries=4)


def seen(answer: MetricsAnswer, members: tuple[Instance, ...], known: bool = True) -> Observation:
    world = inventory(members) if known else Missing(Cause.QUERY_FAILED, "silent")
    return assemble("demo", CycleKind.WEIGHTS, NOW, Answers(answer, world, {}, (), members))


def running(values: dict[str, float], **absent: Cause) -> MetricsAnswer:
    readings = {InstanceId(f"demo/{slot}@s9k2x1"): Known(value, NOW - 2.0) for slot, value in values.items()}
    return MetricsAnswer(
        {Signal.RUNNING: readings}, {}, HEALTH, {Signal(name): cause for name, cause in absent.items()}
    )


def test_a_series_without_an_inventory_row_is_no_instance() -> None:
    """B-016: series of deleted instances linger for minutes; they are neither counted nor load."""
    answer = running({"chat-8b-01": 3.0, "chat-8b-02": 50.0, "chat-8b-03": 50.0})
    before = seen(answer, instances(3))
    assert len(before.instances) == len(before.signals[Signal.RUNNING]) == 3
    after = seen(answer, instances(1))
    assert [each.instance_id for each in after.instances] == ["demo/chat-8b-01@s9k2x1"]
    assert after.signals[Signal.RUNNING].value.tolist() == [3.0]


def test_a_process_started_anew_in_the_same_slot_does_not_inherit_the_old_series() -> None:
    """B-016: the id has the start in it, so the name alone does not match."""
    anew = instance("chat-8b-01", instance_id=InstanceId("demo/chat-8b-01@s9zzzz"))
    column = seen(running({"chat-8b-01": 3.0}), (anew,)).signals[Signal.RUNNING]
    assert column[0] == Missing(Cause.UNSEEN)


def test_an_instance_without_a_series_is_unseen_and_stays_an_instance() -> None:
    column = seen(running({"chat-8b-01": 3.0}), instances(2)).signals[Signal.RUNNING]
    assert column[0] == Known(3.0, NOW - 2.0)
    assert column[1] == Missing(Cause.UNSEEN)


@pytest.mark.parametrize("cause", [Cause.QUERY_TIMEOUT, Cause.QUERY_FAILED, Cause.EMPTY, Cause.PARTIAL])
def test_a_query_that_gave_nothing_lends_its_cause_to_every_gap(cause: Cause) -> None:
    column = seen(running({"chat-8b-01": 3.0}, running=cause), instances(2)).signals[Signal.RUNNING]
    assert [column[0], column[1]] == [Known(3.0, NOW - 2.0), Missing(cause)]


def test_a_signal_of_which_only_the_failure_is_known_has_a_full_column() -> None:
    found = seen(running({}, up=Cause.QUERY_FAILED), instances(2)).signals
    assert [found[Signal.UP][0], found[Signal.UP][1]] == [Missing(Cause.QUERY_FAILED)] * 2
    assert Signal.WAITING not in found


def test_a_reading_that_came_as_missing_keeps_its_own_cause() -> None:
    id_ = instances(1)[0].instance_id
    answer = MetricsAnswer({Signal.STEP_TIME: {id_: Missing(Cause.NO_TRAFFIC)}}, {}, HEALTH)
    assert seen(answer, instances(1)).signals[Signal.STEP_TIME][0] == Missing(Cause.NO_TRAFFIC)


def test_rows_stand_by_pool_and_id_and_readings_go_with_them() -> None:
    members = (*instances(2, "vision"), *instances(2))
    answer = running({"vision-01": 31.0, "vision-02": 32.0, "chat-8b-01": 1.0, "chat-8b-02": 2.0})
    found = seen(answer, tuple(reversed(members)))
    slots = [each.instance_id.partition("/")[2].partition("@")[0] for each in found.instances]
    assert slots == ["chat-8b-01", "chat-8b-02", "vision-01", "vision-02"]
    assert found.signals[Signal.RUNNING].value.tolist() == [1.0, 2.0, 31.0, 32.0]


def test_while_the_orchestrator_is_silent_the_last_known_instances_stand() -> None:
    """Before its silence the inventory counts; during it the last one, said to be missing."""
    world = World().settled()
    last = world.cycle().observation
    assert last is not None
    assert isinstance(last.inventory, Inventory)
    world.orchestrator.faults.down = "connection refused"
    dark = world.cycle().observation
    assert dark is not None
    assert dark.inventory == Missing(Cause.QUERY_FAILED, "connection refused")
    assert dark.instances == last.instances
    world.orchestrator.faults.down = ""
    back = world.cycle().observation
    assert back is not None
    assert isinstance(back.inventory, Inventory)


def test_while_the_orchestrator_is_silent_nothing_shrinks() -> None:
    world = World()
    world.running = 0.0
    before = _asked_to_shrink(world)
    assert before
    world.orchestrator.faults.down = "connection refused"
    assert not _asked_to_shrink(world)


def _asked_to_shrink(world: World) -> bool:
    """Whether, after enough idle capacity cycles, a smaller pool is asked for."""
    shrinks = []
    for _ in range(30):
        plan = world.cycle(CycleKind.CAPACITY, after_s=15.0).plan
        assert plan is not None
        explanation = plan.decisions[CHAT].explanation
        assert explanation.before is not None
        assert explanation.after is not None
        shrinks.append(explanation.after < explanation.before)
    return any(shrinks)


def test_without_an_orchestrator_nobody_was_asked() -> None:
    world = World()
    world.loop._ports = replace(world.loop._ports, orchestrator=None)
    report = world.cycle()
    assert report.observation is not None
    assert isinstance(report.observation.inventory, Missing)
    assert report.observation.inventory.cause is Cause.NOT_ASKED
    assert report.observation.instances == ()
    assert not report.failure


def test_a_silent_gateway_is_missing_with_its_reason_and_the_rest_is_seen() -> None:
    world = World().settled()
    before = world.cycle().observation
    world.gateway.reads.unavailable(reason="no such socket")
    after = world.cycle().observation
    assert before is not None
    assert after is not None
    assert not isinstance(before.gateways["edge"], Missing)
    assert after.gateways["edge"] == Missing(Cause.QUERY_FAILED, "no such socket")
    assert after.instances == before.instances


def test_holds_of_people_are_part_of_what_was_seen() -> None:
    world = World().settled()
    world.speed = SLOW
    world.ledger.people = [Hold(CHAT, "ann", "incident 7", NOW)]
    report = world.cycle()
    assert report.observation is not None
    assert report.plan is not None
    assert report.observation.holds == (Hold(CHAT, "ann", "incident 7", NOW),)
    assert report.plan.decisions[CHAT].outcome is Outcome.HELD
    assert world.gateway.sent == []
