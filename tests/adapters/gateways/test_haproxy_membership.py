"""Members that come and go at run time, on a real HAProxy: nothing is cut, and nothing is forced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from controlplane.adapters.gateways.haproxy import membership
from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.parse import BackendRow, Process, ServerRow, Tables
from controlplane.adapters.gateways.haproxy.runtime import Answer, Deadline, RuntimeSocket
from controlplane.adapters.memory.metrics import MemoryMetrics
from controlplane.adapters.memory.orchestrator import MemoryOrchestrator
from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import ActionId, CycleKind, InstanceId, PoolName
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.domain.policy import Policies
from controlplane.loop.cycle import Loop, Ports, Report
from controlplane.ports import MetricsAnswer, OutcomeUnknown, Unavailable
from tests.adapters.gateways.callers import Crowd, Stream, ask
from tests.adapters.gateways.conftest import (
    POOL,
    Door,
    MakeDoor,
    SystemClock,
    action,
    instance,
    instance_id,
)
from tests.adapters.gateways.engines import chat
from tests.builders import inventory, policies, pool_policy, steady_pool
from tests.loop.world import MemoryLease, MemoryLedger, answer
from tests.support import eventually

real = pytest.mark.real

Batch = Sequence[tuple[ActionId, Action]]


@pytest.fixture
def door(make_door: MakeDoor) -> Door:
    """Two engines, `s1` and `s2`; HAProxy's file knows the first only."""
    door = make_door(limit=1, up=False)
    pool = door.layout.pools[0]
    door.layout = replace(door.layout, pools=(replace(pool, servers=pool.servers[:1]),))
    return door.up()


def arrival(slot: str, weight: int = 40, limit: int = 3) -> Batch:
    """A new member and all its levels, as one cycle asks for them."""
    return [
        action(ActionKind.OPEN, slot, 1, ordinal=0),
        action(ActionKind.SET_WEIGHT, slot, weight, ordinal=1),
        action(ActionKind.SET_LIMIT, slot, limit, ordinal=2),
        action(ActionKind.ADD, slot, 1, seen=0, ordinal=3),
    ]


def states(door: Door, batch: Batch) -> list[ActionState]:
    outcomes = door.gateway.apply(batch)
    return [outcomes[id_][0] for id_, _ in batch]


def gone(door: Door, slot: str) -> None:
    """The inventory says so."""
    number = [one.instance_id for one in door.instances].index(instance_id(slot))
    door.instances[number] = replace(door.instances[number], phase=Phase.GONE)


def slots(door: Door) -> list[str]:
    """The servers that HAProxy itself lists."""
    rows = door.runtime.ask([f"show servers state {POOL}"], Deadline(5))[0].splitlines()[2:]
    return [row.split()[3] for row in rows]


@real
def test_a_new_instance_is_added_given_its_levels_and_opened_in_one_go(door: Door) -> None:
    assert (door.server("s2").state, slots(door)) == (ServerState.ABSENT, ["s1"])
    assert states(door, arrival("s2")) == [ActionState.APPLIED] * 4
    added = door.server("s2")
    assert (added.state, added.weight, added.limit) == (ServerState.OPEN, 40, 3)
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert ask(door.port, chat()).status == 200
    assert door.engines[1].served == 1


@real
def test_what_waits_is_woken_when_a_new_server_comes(door: Door) -> None:
    door.engines[0].hold()
    crowd = Crowd(door.port).send(3)
    eventually(lambda: (door.backend().queue, door.engines[0].in_flight) == (2, 1), 5)
    assert door.engines[1].served == 0
    door.gateway.apply(arrival("s2"))
    eventually(lambda: door.engines[1].served == 2, 5, because="those that waited are served")
    assert door.engines[0].in_flight == 1
    door.engines[0].finish_all()
    assert crowd.join() == [200] * 3


@real
def test_an_added_server_is_closed_and_nearly_shut_until_its_levels_come(door: Door) -> None:
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert door.apply_one(ActionKind.ADD, "s2", 1, seen=0)[0] is ActionState.APPLIED
    added = door.server("s2")
    assert (added.state, added.weight, added.limit) == (ServerState.CLOSED, 1, 1)
    assert ask(door.port, chat()).status == 503


@real
def test_an_added_server_is_checked_and_leaves_when_its_engine_does(door: Door) -> None:
    door.gateway.apply(arrival("s2"))
    assert door.server("s2").state is ServerState.OPEN
    door.engines[1].close()
    eventually(lambda: door.server("s2").state is ServerState.DOWN, 15, because="its checks fail")


@real
def test_adding_who_is_there_and_removing_who_is_not_change_nothing(door: Door) -> None:
    gone(door, "s2")
    assert door.apply_one(ActionKind.REMOVE, "s2", 0)[0] is ActionState.UNCHANGED
    before = door.backend()
    assert door.apply_one(ActionKind.ADD, "s1", 1)[0] is ActionState.UNCHANGED
    assert (door.backend(), slots(door)) == (before, ["s1"])


@real
def test_a_removed_member_is_gone_and_its_slot_serves_at_another_address(door: Door) -> None:
    door.gateway.apply(arrival("s2"))
    gone(door, "s2")
    assert door.server("s2").state is ServerState.OPEN
    state, why = door.apply_one(ActionKind.REMOVE, "s2", 0)
    assert (state, "is open" in why) == (ActionState.FAILED, True)
    door.apply_one(ActionKind.CLOSE, "s2", 0)
    assert door.apply_one(ActionKind.REMOVE, "s2", 0, seen=1)[0] is ActionState.APPLIED
    assert slots(door) == ["s1"]
    assert instance_id("s2") not in {one.instance_id for one in door.backend().servers}
    door.instances[1] = instance("s2", door.engines[0].address)
    assert states(door, arrival("s2")) == [ActionState.APPLIED] * 4
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert ask(door.port, chat()).status == 200
    assert (door.engines[0].served, door.engines[1].served) == (1, 0)


@real
def test_a_member_of_the_file_can_be_removed_too(door: Door) -> None:
    gone(door, "s1")
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert slots(door) == ["s1"]
    assert door.apply_one(ActionKind.REMOVE, "s1", 0)[0] is ActionState.APPLIED
    assert slots(door) == []


@real
def test_a_stream_is_not_cut_by_a_removal_which_fails_until_it_has_ended(door: Door) -> None:
    door.gateway.apply(arrival("s2"))
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    door.engines[1].hold()
    stream = Stream(door.port)
    assert b"first" in stream.read_some()
    gone(door, "s2")
    door.apply_one(ActionKind.CLOSE, "s2", 0)
    state, why = door.apply_one(ActionKind.REMOVE, "s2", 0)
    assert state is ActionState.FAILED
    assert "still has connections attached" in why
    assert (slots(door), door.server("s2").in_flight) == (["s1", "s2"], 1)
    door.engines[1].finish()
    assert b"[DONE]" in stream.read_rest()
    # A connection that HAProxy keeps for reuse may hold the server for some seconds more.
    eventually(lambda: door.apply_one(ActionKind.REMOVE, "s2", 0)[0] is ActionState.APPLIED, 20)
    assert slots(door) == ["s1"]


@real
def test_a_gone_instance_is_shown_while_its_server_is_there_and_nobody_lives_in_its_slot(door: Door) -> None:
    gone(door, "s1")
    gone(door, "s2")
    assert [one.instance_id for one in door.backend().servers] == [instance_id("s1")]
    successor = replace(door.instances[0], instance_id=InstanceId("demo/s1@sb0000"), phase=Phase.SERVING)
    door.instances.append(replace(successor, started_at=1.0))  # whatever the clocks say
    assert [one.instance_id for one in door.backend().servers] == [successor.instance_id]


@real
def test_a_slot_that_points_to_an_earlier_life_is_closed_emptied_and_moved(door: Door) -> None:
    """Its traffic would go to another process; the requests that are there may end there."""
    door.engines[0].hold()
    stream = Stream(door.port)
    assert b"first" in stream.read_some()
    old, new = door.instances[0].address, door.engines[1].address
    door.instances = [replace(door.instances[0], address=new)]
    assert door.server("s1").state is ServerState.ABSENT
    outcomes = door.gateway.apply(arrival("s1"))
    assert {state for state, _ in outcomes.values()} == {ActionState.FAILED}
    assert f"still points to {old}" in next(why for _, why in outcomes.values() if "points" in why)
    state, why = door.apply_one(ActionKind.ADD, "s1", 1)
    assert (state, "1 requests have not ended" in why) == (ActionState.FAILED, True)
    door.engines[0].finish()
    assert b"[DONE]" in stream.read_rest()
    eventually(lambda: door.backend().in_flight == 0, 5)
    assert states(door, arrival("s1")) == [ActionState.APPLIED] * 4
    assert ask(door.port, chat()).status == 200
    assert (door.engines[0].served, door.engines[1].served) == (1, 1)


@real
def test_a_refusal_to_add_is_haproxys_own_words_and_the_rest_of_the_batch_is_done(
    make_door: MakeDoor,
) -> None:
    """B-123: a static algorithm takes no members; that answer ends without an empty line."""
    door = make_door(up=False).up(balance="static-rr")
    door.instances.append(instance("s3", "127.0.0.1:9"))
    add, limit = action(ActionKind.ADD, "s3", 1, seen=0), action(ActionKind.SET_LIMIT, "s1", 7, ordinal=1)
    outcomes = door.gateway.apply([add, limit])
    assert outcomes[add[0]][0] is ActionState.REFUSED
    assert "dynamic load balancing" in outcomes[add[0]][1]
    assert outcomes[limit[0]][0] is ActionState.APPLIED


class Broken:
    """The runtime API that breaks in one of its verbs."""

    def __init__(self, runtime: RuntimeSocket, error: Exception, *, looks: int = 99) -> None:
        self._runtime, self._error, self._looks = runtime, error, looks

    def ask(self, questions: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        self._looks -= 1
        if self._looks < 0:
            raise self._error
        return self._runtime.ask(questions, deadline)

    def set(self, settings: Sequence[str], questions: Sequence[str], deadline: Deadline) -> Answer:
        return self._runtime.set(settings, questions, deadline)

    def tell(self, commands: Sequence[str], deadline: Deadline) -> str:
        if self._looks == 99 - 1:
            raise self._error
        return self._runtime.tell(commands, deadline)


@real
@pytest.mark.parametrize(
    ("error", "looks", "state"),
    [
        (Unavailable("no such socket"), 99, ActionState.FAILED),
        (OutcomeUnknown("no answer"), 99, ActionState.UNKNOWN),
        (Unavailable("no answer"), 1, ActionState.UNKNOWN),
    ],
    ids=["not sent", "sent without an answer", "not read back"],
)
def test_what_became_of_an_addition_is_only_said_when_it_is_known(
    door: Door, error: Exception, looks: int, state: ActionState
) -> None:
    broken = Broken(door.runtime, error, looks=looks)
    gateway = HaproxyGateway("door", broken, lambda: door.instances, SystemClock(), 10)
    add = action(ActionKind.ADD, "s2", 1, seen=0)
    assert gateway.apply([add])[add[0]][0] is state


# The loop on a real HAProxy.


@dataclass
class Steered:
    """A door and the loop that steers it, with steady readings. `cycle` is one weights cycle."""

    door: Door
    loop: Loop
    orchestrator: MemoryOrchestrator
    rules: Policies

    def cycle(self) -> Report:
        self.orchestrator.now = inventory(self.door.instances)
        report = self.loop.cycle(CycleKind.WEIGHTS, self.rules)
        assert report.failure == ""
        return report

    def phase(self, slot: str, phase: Phase) -> None:
        self.door.instances = [
            replace(one, phase=phase) if one.instance_id == instance_id(slot) else one
            for one in self.door.instances
        ]


def steered(door: Door, limit: int = 2, speed: Sequence[float] = (1.0, 1.0)) -> Steered:
    def seen(kind: CycleKind, _policies: Policies, now: float) -> MetricsAnswer:
        members = door.instances
        return answer(steady_pool(members=members, kind=kind, now=now, speed=speed[: len(members)]))

    orchestrator = MemoryOrchestrator(inventory(door.instances))
    ports = Ports(
        SystemClock(),
        MemoryMetrics([seen]),
        {"door": door.gateway},
        orchestrator,
        MemoryLedger([]),
        MemoryLease(),
    )
    return Steered(door, Loop("demo", ports, "1.0"), orchestrator, policies(pool_policy(limit=limit)))


@real
def test_an_instance_that_started_after_the_gateway_takes_traffic_within_a_cycle(door: Door) -> None:
    later = door.instances.pop()
    run = steered(door, limit=1)
    run.cycle()
    door.engines[0].hold()
    crowd = Crowd(door.port).send(3)
    eventually(lambda: (door.backend().queue, door.engines[0].in_flight) == (2, 1), 5)
    door.instances.append(later)
    states = {state for state, _ in run.cycle().outcomes.values()}
    assert states == {ActionState.APPLIED, ActionState.UNCHANGED}, "a new server has limit 1 already"
    eventually(lambda: door.engines[1].served == 2, 5, because="those that waited are served")
    assert (door.engines[0].in_flight, door.server("s2").limit) == (1, 1)
    door.engines[0].finish_all()
    assert crowd.join() == [200] * 3
    assert run.cycle().outcomes == {}


@real
def test_a_gone_instance_leaves_the_gateway_once_its_last_stream_has_ended(door: Door) -> None:
    run = steered(door)
    run.cycle()
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    door.engines[1].hold()
    stream = Stream(door.port)
    assert b"first" in stream.read_some()
    run.phase("s2", Phase.GONE)
    run.cycle()
    assert (door.server("s2").state, door.server("s2").in_flight) == (ServerState.CLOSED, 1)
    run.cycle()
    assert slots(door) == ["s1", "s2"]
    door.engines[1].finish()
    assert b"[DONE]" in stream.read_rest()
    eventually(lambda: run.cycle() and slots(door) == ["s1"], 20)
    assert ask(door.port, chat()).status == 200
    assert run.cycle().outcomes == {}


@real
def test_a_gateway_restarted_from_its_file_gets_a_later_member_back_within_a_cycle(door: Door) -> None:
    run = steered(door, limit=8, speed=(1.0, 0.5))
    for _ in range(6):
        run.cycle()
    before = [(one.instance_id, one.state, one.weight, one.limit) for one in door.backend().servers]
    assert door.server("s2").weight not in (1, 100)
    door.restart()
    assert (slots(door), door.server("s2").state) == (["s1"], ServerState.ABSENT)
    run.cycle()
    after = [(one.instance_id, one.state, one.weight, one.limit) for one in door.backend().servers]
    assert after == before
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert ask(door.port, chat()).status == 200
    assert door.engines[1].served == 1


@real
def test_a_drained_instance_that_returns_as_it_was_is_not_left_at_weight_zero(make_door: MakeDoor) -> None:
    """B-108: the intended weight never changed; the gateway's did, and that is what counts."""
    door = make_door()
    run = steered(door)
    run.cycle()
    wanted = door.server("s2").weight
    assert wanted > 0
    run.phase("s2", Phase.DRAINING)
    run.cycle()
    door.command("set server chat-8b/s2 weight 0")
    assert (door.server("s2").state, door.server("s2").weight) == (ServerState.CLOSED, 0)
    run.phase("s2", Phase.SERVING)
    run.cycle()
    assert (door.server("s2").state, door.server("s2").weight) == (ServerState.OPEN, wanted)
    door.apply_one(ActionKind.CLOSE, "s1", 0)
    assert ask(door.port, chat()).status == 200


# The pure part.

ROW = ServerRow(POOL, "s1", "127.0.0.1:1", True, False, 100, 8, 0, 0, 0)


def tables(*rows: ServerRow, pool: str = POOL) -> Tables:
    backend = BackendRow(pool, 0, 0, 0, 0, 0)
    return Tables(Process(7, 1, None), (backend,), {(row.pool, row.name): row for row in rows})


def sifted(kind: ActionKind, found: Tables, *known: Instance, level: int | None = None) -> Any:
    wanted = level if level is not None else int(kind is ActionKind.ADD)
    one = action(kind, "s1", wanted)
    outcomes, changes = membership.sift([one], found, known)
    return outcomes[one[0]] if outcomes else changes[0].commands


def test_a_server_is_added_closed_then_checked_and_never_without_a_limit() -> None:
    assert sifted(ActionKind.ADD, tables(), instance("s1", "127.0.0.1:1")) == (
        "add server chat-8b/s1 127.0.0.1:1 weight 1 maxconn 1 check inter 2s fall 3 rise 1 disabled",
        "enable health chat-8b/s1",
    )


@pytest.mark.parametrize(
    ("address", "port"), [("127.0.0.1:2", "127.0.0.1 port 2"), ("[::1]:2", "::1 port 2")]
)
def test_an_idle_closed_slot_is_moved_to_its_new_address(address: str, port: str) -> None:
    moved = sifted(ActionKind.ADD, tables(ROW), instance("s1", address))
    assert moved == (f"set server chat-8b/s1 addr {port}",)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:01"])
def test_the_same_place_in_another_spelling_is_the_same_place(address: str) -> None:
    found = sifted(ActionKind.ADD, tables(ROW), instance("s1", address))
    assert found == (ActionState.UNCHANGED, "it is there already")


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("engine-3.lan:8000", "needs an IP address"),
        ("127.0.0.1", "needs an IP address"),
        ("127.0.0.1:1;del server x/y", "needs an IP address"),
        ("127.0.0.1:70000", "from 1 to 65535"),
        ("127.0.0.1:0", "from 1 to 65535"),
    ],
)
def test_an_address_that_a_new_server_cannot_have_is_refused_in_words(address: str, what: str) -> None:
    state, why = sifted(ActionKind.ADD, tables(), instance("s1", address))
    assert state is ActionState.REFUSED
    assert what in why
    assert repr(address) in why


def test_who_cannot_be_placed_is_not_added_and_it_is_said_why() -> None:
    state, why = sifted(ActionKind.ADD, tables())
    assert (state, "names no address for demo/s1@s9k2x1" in why) == (ActionState.FAILED, True)
    other = instance("s1", "127.0.0.1:1", pool=PoolName("code"))
    assert sifted(ActionKind.ADD, tables(), other)[0] is ActionState.FAILED
    here = instance("s1", "127.0.0.1:1")
    state, why = sifted(ActionKind.ADD, tables(pool="code"), here)
    assert (state, "no backend chat-8b" in why) == (ActionState.FAILED, True)
    long = instance("s1", "127.0.0.1:1", instance_id=InstanceId(f"demo/{'x' * 65}@s"))
    one = action(ActionKind.ADD, "x" * 65, 1)
    one = one[0], replace(one[1], instance=long.instance_id)
    assert membership.sift([one], tables(), [long])[0][one[0]][0] is ActionState.REFUSED


@pytest.mark.parametrize(("kind", "level"), [(ActionKind.ADD, 0), (ActionKind.REMOVE, 1)])
def test_membership_has_one_level_each_way(kind: ActionKind, level: int) -> None:
    found = sifted(kind, tables(ROW), instance("s1", "127.0.0.1:1"), level=level)
    assert found[0] is ActionState.REFUSED


def test_a_slot_in_which_another_instance_lives_is_not_removed() -> None:
    left = instance("s1", "127.0.0.1:1", phase=Phase.GONE, started_at=900.0)
    lives = instance("s1", "127.0.0.1:1", instance_id=InstanceId("demo/s1@sb0000"))
    assert sifted(ActionKind.REMOVE, tables(ROW), left) != (ActionState.UNCHANGED, "it is not there")
    assert sifted(ActionKind.REMOVE, tables(ROW), left, lives) == (ActionState.UNCHANGED, "it is not there")


def test_an_accepted_change_that_cannot_be_read_back_is_no_success() -> None:
    (change,) = membership.sift([action(ActionKind.ADD, "s1", 1)], tables(), [instance("s1", "127.0.0.1:1")])[
        1
    ]
    assert membership.verdict(change, "", tables()) == (
        ActionState.FAILED,
        "it was accepted, and nothing has changed",
    )
    assert membership.verdict(change, "", tables(ROW))[0] is ActionState.APPLIED
