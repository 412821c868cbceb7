"""The gateway port on a real HAProxy: levels out, levels back, and an honest word on every action."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest

from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.runtime import Answer, Deadline, RuntimeSocket
from controlplane.domain.fleet import Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import InstanceId
from controlplane.domain.plan import ActionKind, ActionState
from controlplane.ports import Unavailable
from tests.adapters.gateways.callers import Crowd, Stream, ask
from tests.adapters.gateways.conftest import Door, MakeDoor, SystemClock, action, instance, instance_id
from tests.adapters.gateways.engines import chat
from tests.support import eventually

pytestmark = pytest.mark.real


def test_what_is_set_is_what_is_read_back(door: Door) -> None:
    before = door.server("s1")
    assert (before.weight, before.limit, before.state) == (100, 2, ServerState.OPEN)
    batch = [
        action(ActionKind.SET_WEIGHT, "s1", 37, ordinal=0),
        action(ActionKind.SET_LIMIT, "s1", 5, ordinal=1),
        action(ActionKind.CLOSE, "s2", 0, ordinal=2),
    ]
    outcomes = door.gateway.apply(batch)
    assert [outcomes[id_][0] for id_, _ in batch] == [ActionState.APPLIED] * 3
    after = door.server("s1")
    assert (after.weight, after.limit, after.state) == (37, 5, ServerState.OPEN)
    assert door.server("s2").state is ServerState.CLOSED


def test_the_same_level_twice_changes_nothing_and_says_so(door: Door) -> None:
    assert door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)[0] is ActionState.APPLIED
    once = door.backend()
    assert door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)[0] is ActionState.UNCHANGED
    assert door.backend() == once


def test_a_server_that_the_file_left_out_of_traffic_can_be_opened(make_door: MakeDoor) -> None:
    door = make_door(up=False)
    pool = door.layout.pools[0]
    shut = replace(pool, servers=(replace(pool.servers[0], drained=True), pool.servers[1]))
    door.layout = replace(door.layout, pools=(shut,))
    door.up()
    assert door.server("s1").state is ServerState.CLOSED
    assert door.apply_one(ActionKind.OPEN, "s1", 1)[0] is ActionState.APPLIED
    assert door.server("s1").state is ServerState.OPEN


def test_strangers_survive_and_are_not_reported(door: Door) -> None:
    """A server that the inventory does not know belongs to somebody else."""
    door.command("set server chat-8b/s2 weight 77")
    door.instances = door.instances[:1]
    assert [one.instance_id for one in door.backend().servers] == [instance_id("s1")]
    door.apply_one(ActionKind.SET_WEIGHT, "s1", 10)
    door.instances.append(instance("s2", door.engines[1].address))
    assert door.server("s2").weight == 77


def test_a_strangers_requests_still_count_for_the_pool(door: Door) -> None:
    door.engines[1].hold()
    door.instances = door.instances[:1]
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    crowd = Crowd(door.port).send(1)
    eventually(lambda: door.backend().in_flight == 1, 5)
    assert door.backend().servers[0].in_flight == 0
    door.engines[1].finish_all()
    assert crowd.join() == [200]


def test_an_instance_without_a_server_is_absent_and_an_action_on_it_fails(door: Door) -> None:
    door.instances.append(instance("s3", "127.0.0.1:9"))
    assert door.server("s3").state is ServerState.ABSENT
    state, why = door.apply_one(ActionKind.SET_WEIGHT, "s3", 5)
    assert state is ActionState.FAILED
    assert "no server for demo/s3@s9k2x1" in why


def test_an_instance_at_another_address_is_not_its_slots_server(door: Door) -> None:
    """The file names the old address: its traffic would go to another process."""
    door.instances[0] = replace(door.instances[0], address="127.0.0.1:9")
    assert door.server("s1").state is ServerState.ABSENT


def test_the_newest_instance_of_a_slot_is_its_holder(door: Door) -> None:
    """A restart in place gets a new id at the same slot and address."""
    later = InstanceId("demo/s1@sb0000")
    successor = replace(door.instances[0], instance_id=later, started_at=200.0)
    door.instances.insert(0, successor)
    assert successor.instance_id in {one.instance_id for one in door.backend().servers}
    assert instance_id("s1") not in {one.instance_id for one in door.backend().servers}
    door.instances[0] = replace(successor, phase=Phase.GONE)
    assert instance_id("s1") in {one.instance_id for one in door.backend().servers}


def test_a_restart_shows_as_another_epoch_with_the_files_levels(door: Door) -> None:
    door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)
    first = door.gateway.read()
    assert door.gateway.read().epoch == first.epoch
    assert door.server("s1").weight == 37
    door.restart()
    second = door.gateway.read()
    assert second.epoch != first.epoch
    assert door.server("s1").weight == 100
    assert door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)[0] is ActionState.APPLIED


def test_a_weight_that_somebody_changed_since_the_decision_is_a_conflict(door: Door) -> None:
    assert door.apply_one(ActionKind.SET_WEIGHT, "s1", 50, seen=100)[0] is ActionState.APPLIED
    door.command("set server chat-8b/s1 weight 12")
    state, why = door.apply_one(ActionKind.SET_WEIGHT, "s1", 60, seen=50)
    assert state is ActionState.REFUSED
    assert "conflict" in why
    assert "12" in why
    assert door.server("s1").weight == 12


def test_a_zeroed_weight_is_repaired_from_what_the_gateway_says(door: Door) -> None:
    """B-108: not the last text we sent decides, but the state that is read."""
    door.apply_one(ActionKind.SET_WEIGHT, "s1", 40)
    door.command("set server chat-8b/s1 weight 0")
    assert door.server("s1").weight == 0
    assert door.apply_one(ActionKind.SET_WEIGHT, "s1", 40)[0] is ActionState.APPLIED
    assert door.server("s1").weight == 40


def test_the_last_weight_of_a_pool_is_not_zeroed(door: Door) -> None:
    """B-126: all weights zero is 503 for everybody."""
    zeros = [action(ActionKind.SET_WEIGHT, f"s{n}", 0, ordinal=n) for n in (1, 2)]
    assert {state for state, _ in door.gateway.apply(zeros).values()} == {ActionState.REFUSED}
    assert [one.weight for one in door.backend().servers] == [100, 100]
    assert door.gateway.apply(zeros[:1])[zeros[0][0]][0] is ActionState.APPLIED
    assert door.gateway.apply(zeros[1:])[zeros[1][0]][0] is ActionState.REFUSED


@pytest.mark.parametrize(
    ("kind", "level"),
    [(ActionKind.SET_LIMIT, 0), (ActionKind.SET_LIMIT, -1), (ActionKind.SET_WEIGHT, 257)],
)
def test_levels_that_would_mean_something_else_are_never_sent(
    door: Door, kind: ActionKind, level: int
) -> None:
    """HAProxy takes a limit of 0 and of -1 for unlimited, without a word."""
    before = door.backend()
    assert door.apply_one(kind, "s1", level)[0] is ActionState.REFUSED
    assert door.backend() == before


def test_a_refusal_comes_back_in_haproxys_own_words(make_door: MakeDoor) -> None:
    """B-123: a static algorithm takes 0% and 100% only; the rest of the batch is done."""
    door = make_door(up=False).up(balance="static-rr")
    batch = [
        action(ActionKind.SET_WEIGHT, "s1", 37, ordinal=0),
        action(ActionKind.SET_LIMIT, "s1", 7, ordinal=1),
    ]
    outcomes = door.gateway.apply(batch)
    state, why = outcomes[batch[0][0]]
    assert state is ActionState.REFUSED
    assert "static" in why
    assert outcomes[batch[1][0]][0] is ActionState.APPLIED
    assert (door.server("s1").weight, door.server("s1").limit) == (100, 7)


class FreezesBeforeWriting:
    """The runtime API of a HAProxy that stops between the last look and the write."""

    def __init__(self, runtime: RuntimeSocket, pid: int) -> None:
        self._runtime, self._pid = runtime, pid

    def ask(self, questions: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        return self._runtime.ask(questions, deadline)

    def set(self, settings: Sequence[str], questions: Sequence[str], deadline: Deadline) -> Answer:
        os.kill(self._pid, signal.SIGSTOP)
        return self._runtime.set(settings, questions, deadline)

    def tell(self, commands: Sequence[str], deadline: Deadline) -> str:
        os.kill(self._pid, signal.SIGSTOP)
        return self._runtime.tell(commands, deadline)


def test_a_write_without_an_answer_is_unknown_and_settled_by_looking(door: Door) -> None:
    assert door.process is not None
    runtime = FreezesBeforeWriting(door.runtime, door.process.pid)
    gateway = HaproxyGateway("door", runtime, lambda: door.instances, SystemClock(), timeout_s=0.8)
    one = action(ActionKind.SET_WEIGHT, "s1", 37)
    try:
        state, why = gateway.apply([one])[one[0]]
        assert state is ActionState.UNKNOWN
        assert "no answer in time" in why
        with pytest.raises(Unavailable):
            gateway.read()
        # Frozen before anything is sent: nothing happened, and that is known.
        gateway = HaproxyGateway("door", door.runtime, lambda: door.instances, SystemClock(), timeout_s=0.8)
        assert gateway.apply([one])[one[0]][0] is ActionState.FAILED
    finally:
        os.kill(door.process.pid, signal.SIGCONT)
    assert door.server("s1").weight in (37, 100)


def test_a_gateway_that_is_not_there_is_unavailable_and_every_action_failed(door: Door) -> None:
    door.down()
    with pytest.raises(Unavailable, match=r"admin\.sock"):
        door.gateway.read()
    batch = [action(ActionKind.SET_WEIGHT, f"s{n}", 5, ordinal=n) for n in (1, 2)]
    outcomes = door.gateway.apply(batch)
    assert set(outcomes) == {id_ for id_, _ in batch}
    assert {state for state, _ in outcomes.values()} == {ActionState.FAILED}


def test_a_closed_server_finishes_its_stream_while_new_requests_go_elsewhere(door: Door) -> None:
    door.engines[0].hold()
    door.apply_one(ActionKind.CLOSE, "s2", 0)
    stream = Stream(door.port)
    assert b"first" in stream.read_some()
    door.apply_one(ActionKind.OPEN, "s2", 1)
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert [ask(door.port, chat()).status for _ in range(4)] == [200] * 4
    assert (len(door.engines[0].requests), len(door.engines[1].requests)) == (1, 4)
    assert door.server("s1").in_flight == 1
    door.engines[0].finish()
    assert b"[DONE]" in stream.read_rest()
    eventually(lambda: door.server("s1").in_flight == 0, 5)


def test_totals_count_arrivals_completions_and_refusals(make_door: MakeDoor) -> None:
    door = make_door(engines=1, limit=1, queue_bound=1)
    assert (door.backend().arrivals_total, door.server("s1").completed_total) == (0, 0)
    assert ask(door.port, chat()).status == 200
    eventually(lambda: door.server("s1").completed_total == 1, 5)
    door.engines[0].hold()
    crowd = Crowd(door.port).send(1)
    eventually(lambda: door.server("s1").in_flight == 1, 5)
    assert door.server("s1").completed_total == 1
    crowd.send(1)
    eventually(lambda: door.backend().queue == 1, 5)
    assert door.backend().refused_total == 0
    assert ask(door.port, chat()).status == 503
    assert (door.backend().arrivals_total, door.backend().refused_total) == (4, 1)
    door.engines[0].finish_all()
    assert crowd.join() == [200, 200]


@pytest.mark.parametrize("how", ["ready", "weight"])
def test_what_waits_is_woken_when_a_server_returns(make_door: MakeDoor, how: str) -> None:
    """Neither `ready` nor a weight above zero wakes a queue: it would wait beside an idle server."""
    door = make_door(engines=2, limit=1)
    door.engines[0].hold()
    shut, opened = {
        "ready": ((ActionKind.CLOSE, 0), (ActionKind.OPEN, 1)),
        "weight": ((ActionKind.SET_WEIGHT, 0), (ActionKind.SET_WEIGHT, 100)),
    }[how]
    door.apply_one(shut[0], "s2", shut[1])
    crowd = Crowd(door.port).send(3)
    eventually(lambda: (door.backend().queue, door.engines[0].in_flight) == (2, 1), 5)
    assert door.engines[1].served == 0
    door.apply_one(opened[0], "s2", opened[1])
    eventually(lambda: door.engines[1].served == 2, 5, because="those that waited are served")
    assert door.engines[0].in_flight == 1
    door.engines[0].finish_all()
    assert crowd.join() == [200] * 3
