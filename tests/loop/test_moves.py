"""Capacity through the whole loop: recorded before it is ordered, looked at twice, settled by sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.adapters.memory.metrics import SILENCE
from controlplane.adapters.memory.orchestrator import MemoryOrchestrator
from controlplane.domain.fleet import Life, Phase
from controlplane.domain.gateway import ServerState, ServerView
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.observation import Reach
from controlplane.domain.plan import ActionKind, ActionState
from controlplane.domain.policy import Policies
from controlplane.domain.state import State
from controlplane.loop.cycle import Report
from controlplane.ports import MetricsAnswer, Order, OutcomeUnknown, Refused, Unavailable
from tests.domain.fleets import BATCH, CHAT, Yard, batch_policy, chat_policy, rules, working_buffer
from tests.loop.world import World, answer

WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY
GUEST, SLEEPER = InstanceId("demo/batch-eval-01@s9k2x1"), InstanceId("demo/chat-8b-s01@s9k2x1")


class Moving(World):
    """A working buffer behind the loop: chat is in a surge, and the orchestrator obeys at once."""

    def __init__(self, yard: Yard | None = None) -> None:
        self.yard: Yard = yard or working_buffer()
        self.yard.running[CHAT] = 60.0
        super().__init__(tuple(self.yard.instances.values()), rules(chat_policy(), batch_policy(), reserve=4))
        self.gateway.servers = {CHAT: {}, BATCH: {}}
        for each in self.members:
            state = ServerState.OPEN if each.phase is Phase.SERVING else ServerState.CLOSED
            self.gateway.put(each.pool, ServerView(each.instance_id, state, 100, 8, 0, 0))
        self.orchestrator = MemoryOrchestrator(self.yard.inventory(), Reach.INSTANCES)
        self.orchestrator.then = self.obey
        self.loop = self.restarted()

    def obey(self, order: Order) -> None:
        """Carry an order out."""
        self.become(
            order.instance,
            {Life.AWAKE: Phase.SERVING, Life.ASLEEP: Phase.ASLEEP, Life.GONE: Phase.GONE}[order.life],
        )

    def become(self, name: InstanceId, phase: Phase) -> None:
        """An instance is in another phase."""
        now = self.orchestrator.now
        rows = (replace(each, phase=phase) if each.instance_id == name else each for each in now.instances)
        self.orchestrator.now = replace(now, instances=tuple(rows))

    def surge(self) -> Report:
        """The capacity cycle that sees it."""
        return self.cycle(CAPACITY, after_s=2.0)

    def of(self, kind: ActionKind, name: InstanceId = GUEST) -> list[tuple[ActionState, str]]:
        """What became of all orders of a kind about an instance, in their order."""
        return [
            self.ledger.states[id_]
            for id_, action in self.ledger.actions.items()
            if (action.kind, action.instance) == (kind, name)
        ]

    def _seen(self, kind: CycleKind, policies: Policies, now: float) -> MetricsAnswer:
        self.yard.now, self.yard.policies = now, policies
        self.yard.instances = {each.instance_id: each for each in self.orchestrator.now.instances}
        rows = [row for servers in self.gateway.servers.values() for row in servers.values()]
        self.yard.state = self.ledger.records[-1].next_state if self.ledger.records else State()
        self.yard.in_flight = {row.instance_id: row.in_flight for row in rows}
        return answer(self.yard.seen(kind))


def test_an_order_leaves_after_it_is_recorded_and_after_the_gateway_has_closed() -> None:
    world = Moving()
    world.orchestrator.then = lambda order: world.journal.append(f"ensure {order.life}")
    world.surge()
    done = world.journal
    assert done.index("record") < done.index("apply edge") < done.index("ensure asleep")
    assert world.gateway.servers[BATCH][GUEST].state is ServerState.CLOSED


def test_a_surge_is_served_by_a_woken_sleeper_two_cycles_later() -> None:
    world = Moving()
    world.surge()
    assert world.orchestrator.orders == [("ensure", GUEST, "asleep")]
    world.cycle(WEIGHTS, after_s=2.0)
    assert ("ensure", SLEEPER, "awake") in world.orchestrator.orders
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.CLOSED
    world.cycle(WEIGHTS, after_s=2.0)
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.OPEN
    assert list(world.ledger.lent) == [SLEEPER]


def test_an_accepted_order_is_applied_only_when_it_is_seen() -> None:
    world = Moving()
    world.orchestrator.then = lambda _order: None
    world.surge()
    assert [state for state, _ in world.of(ActionKind.ENSURE)] == [ActionState.APPLYING]
    world.cycle(WEIGHTS, after_s=2.0)
    assert [state for state, _ in world.of(ActionKind.ENSURE)] == [ActionState.APPLYING], "nothing yet"
    world.become(GUEST, Phase.ASLEEP)
    world.cycle(WEIGHTS, after_s=2.0)
    assert [state for state, _ in world.of(ActionKind.ENSURE)] == [ActionState.APPLIED]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Unavailable("nobody there"), ActionState.FAILED),
        (Refused("not ours"), ActionState.REFUSED),
        (OutcomeUnknown("no answer"), ActionState.UNKNOWN),
    ],
)
def test_an_order_that_went_wrong_is_recorded_as_what_it_is(error: Exception, state: ActionState) -> None:
    world = Moving()
    world.orchestrator.order_faults.then(error)
    world.surge()
    assert [each for each, _ in world.of(ActionKind.ENSURE)] == [state]
    assert str(error) in world.of(ActionKind.ENSURE)[0][1]


def test_an_order_without_an_answer_that_took_effect_is_seen_and_not_sent_again() -> None:
    world = Moving()
    world.orchestrator.order_faults.then(OutcomeUnknown("no answer"))
    world.surge()
    world.become(GUEST, Phase.ASLEEP)
    world.cycle(WEIGHTS, after_s=2.0)
    assert [state for state, _ in world.of(ActionKind.ENSURE)] == [ActionState.APPLIED]
    assert ("ensure", GUEST, "asleep") not in world.orchestrator.orders, "the unanswered one was not noted"


def test_after_one_order_without_an_answer_the_cycle_does_not_wait_for_the_others() -> None:
    world = Moving()
    more = replace(chat_policy().capacity, minimum=7)
    world.rules = rules(chat_policy(capacity=more), batch_policy(), reserve=4)
    world.orchestrator.order_faults.then(OutcomeUnknown("no answer in time"))
    world.cycle(CAPACITY)
    ordered = [
        (action.instance, *world.ledger.states[id_])
        for id_, action in world.ledger.actions.items()
        if action.kind is ActionKind.ENSURE
    ]
    assert len(ordered) == 3
    assert ordered[0][1] is ActionState.UNKNOWN
    assert {state for _, state, _ in ordered[1:]} == {ActionState.ABANDONED}
    assert world.orchestrator.orders == []


def test_an_instance_that_a_gateway_did_not_close_is_left_as_it_is() -> None:
    world = Moving()
    world.gateway.writes.unavailable(reason="the socket is gone")
    world.surge()
    assert [state for state, _ in world.of(ActionKind.CLOSE)] == [ActionState.FAILED]
    state, why = world.of(ActionKind.ENSURE)[0]
    assert (state, "may still send it requests" in why) == (ActionState.ABANDONED, True)
    assert world.orchestrator.orders == []


def silent(world: Moving) -> None:
    world.orchestrator.faults.down = "it hangs"


def already_asleep(world: Moving) -> None:
    world.become(GUEST, Phase.ASLEEP)


def lost_lease(world: Moving) -> None:
    world.lease.ours = False


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (silent, "the orchestrator did not answer on the second look: it hangs"),
        (already_asleep, "was at level 2 of life and is at 1 now"),
        (lost_lease, "the lease is not ours any more"),
    ],
)
def test_an_order_that_no_longer_fits_is_abandoned(meanwhile: Callable[[Moving], None], why: str) -> None:
    world = Moving()
    world.ledger.then["record"] = lambda: meanwhile(world)
    world.surge()
    state, said = world.of(ActionKind.ENSURE)[0]
    assert (state, why in said) == (ActionState.ABANDONED, True), said
    assert world.orchestrator.orders == []


def returning() -> Moving:
    """The surge is over; the sleeper that it woke is closed at the gateway, and about to be drained."""
    world = Moving()
    world.surge()
    for _ in range(3):
        world.cycle(WEIGHTS, after_s=2.0)
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.OPEN
    world.yard.running[CHAT] = 2.0
    world.cycle(CAPACITY, after_s=2.0)
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.CLOSED
    world.cycle(WEIGHTS, after_s=0.5)
    world.orchestrator.orders.clear()
    return world


def request_on_its_way(world: Moving) -> None:
    row = world.gateway.servers[CHAT][SLEEPER]
    world.gateway.put(CHAT, replace(row, in_flight=1))


def gateway_restarted(world: Moving) -> None:
    world.gateway.restart()


def gateway_gone(world: Moving) -> None:
    world.gateway.reads.unavailable()


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (request_on_its_way, "it is closed at gateway edge once more, with 1 requests in flight"),
        (gateway_restarted, "it is open at gateway edge once more, with 0 requests in flight"),
        (gateway_gone, "gateway edge did not answer on the second look"),
    ],
)
def test_who_was_idle_and_is_no_more_is_not_ended(meanwhile: Callable[[Moving], None], why: str) -> None:
    world = returning()
    world.ledger.then["record"] = lambda: meanwhile(world)
    world.cycle(WEIGHTS, after_s=2.0)
    assert world.of(ActionKind.ENSURE, SLEEPER)[-1] == (ActionState.ABANDONED, why)
    assert world.orchestrator.orders == []


def test_who_is_idle_on_both_looks_is_ended() -> None:
    world = returning()
    world.cycle(WEIGHTS, after_s=2.0)
    assert world.orchestrator.orders == [("ensure", SLEEPER, "asleep")]


def test_a_gateway_that_restarts_during_a_drain_is_closed_again_before_anybody_is_ended() -> None:
    """The new process has only its file, in which it is open, and counts nothing of the old one's."""
    world = returning()
    world.gateway.restart()
    for _ in range(2):
        world.cycle(WEIGHTS, after_s=2.0)
        assert world.orchestrator.orders == []
        assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.CLOSED
    world.cycle(WEIGHTS, after_s=2.0)
    assert world.orchestrator.orders == [("ensure", SLEEPER, "asleep")]


def test_gpus_that_somebody_took_meanwhile_are_not_taken_from_him() -> None:
    world = Moving()
    world.surge()
    world.ledger.then["record"] = lambda: world.become(GUEST, Phase.SERVING)
    world.cycle(WEIGHTS, after_s=2.0)
    state, said = world.of(ActionKind.ENSURE, SLEEPER)[0]
    assert state is ActionState.ABANDONED
    assert f"held by {GUEST} now" in said


def test_a_controller_that_died_between_record_and_order_goes_on_with_the_move() -> None:
    world = Moving()

    def dies() -> None:
        raise KeyboardInterrupt

    world.ledger.then["record"] = dies
    with pytest.raises(KeyboardInterrupt):
        world.surge()
    assert world.orchestrator.orders == []
    world.loop = world.restarted()
    for _ in range(8):
        world.cycle(WEIGHTS, after_s=2.0)
    assert world.orchestrator.orders[0] == ("ensure", GUEST, "asleep")
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.OPEN
    assert list(world.ledger.lent) == [SLEEPER], "one loan, opened once"


def test_nothing_is_ordered_while_the_record_is_away() -> None:
    world = Moving()
    world.ledger.break_next("record")
    report = world.surge()
    assert report.failure == "the record is gone"
    assert world.orchestrator.orders == []


def test_without_readings_nobody_leaves_and_a_wake_that_was_decided_goes_on() -> None:
    world = Moving()
    world.surge()
    world.metrics.say(SILENCE)
    for _ in range(3):
        world.cycle(WEIGHTS, after_s=2.0)
    assert world.gateway.servers[CHAT][SLEEPER].state is ServerState.OPEN
    before = list(world.orchestrator.orders)
    for kind in (CAPACITY, WEIGHTS) * 4:
        world.cycle(kind, after_s=2.0)
    assert world.orchestrator.orders == before
