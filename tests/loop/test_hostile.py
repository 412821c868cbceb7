"""Orchestrators that say one thing and do another: nobody is ordered twice, and no GPU counts twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, pairwise

import pytest

from controlplane.domain.conservation import account
from controlplane.domain.fleet import Instance, Life, Phase, Place
from controlplane.domain.gateway import ServerState, ServerView
from controlplane.domain.ids import CycleKind
from controlplane.domain.moves.progress import AGAIN_S
from controlplane.domain.plan import ActionKind, ActionState
from controlplane.domain.state import Move, State
from controlplane.ports import Order, OutcomeUnknown
from tests.domain.fleets import CHAT, HOME, batch_policy, chat_policy, member, rules, working_buffer
from tests.loop.test_moves import Moving

PATIENCE_S = 270.0
"""Three times the cold start of the tests' profile."""

STEP_S = 3.0


class Hostile(Moving):
    """Chat needs a fifth instance, for which its own node has room. `asked`: each order with its time."""

    def __init__(self, whim: Callable[[Hostile, Order], None]) -> None:
        super().__init__(working_buffer(serving=4, sleepers=0))
        five = replace(chat_policy().capacity, maximum=5)
        self.rules = rules(chat_policy(capacity=five), batch_policy(), reserve=4)
        self.asked: list[tuple[float, Order]] = []
        self.whim = whim
        self.orchestrator.then = self._asked
        self.kinds = cycle(CycleKind)

    def _asked(self, order: Order) -> None:
        self.asked.append((self.clock.now, order))
        self.whim(self, order)

    def step(self) -> None:
        """One cycle of one of the clocks, in turn."""
        assert self.cycle(next(self.kinds), after_s=STEP_S).failure == ""

    def until(self, told: Callable[[], bool], most_doubled: int = 0) -> None:
        """Cycles until it is so, in none of which more GPUs than those are in two hands."""
        for _ in range(200):
            if told():
                return
            self.step()
            assert account(self.orchestrator.now).unaccounted <= most_doubled
        raise AssertionError("not within 200 cycles")

    @property
    def state(self) -> State:
        """As it was recorded last."""
        return self.ledger.records[-1].next_state

    @property
    def moves(self) -> tuple[Move, ...]:
        return self.state.moves

    def appears(self, made: Instance) -> None:
        """An instance is there, closed at the gateway."""
        now = self.orchestrator.now
        others = [each for each in now.instances if each.instance_id != made.instance_id]
        self.orchestrator.now = replace(now, instances=(*others, made))
        self.gateway.put(CHAT, ServerView(made.instance_id, ServerState.CLOSED, 100, 8, 0, 0))

    def obeys(self, order: Order) -> None:
        """It does what it is told, at once."""
        self.appears(made(order, {Life.AWAKE: Phase.SERVING, Life.GONE: Phase.GONE}[order.life]))

    def chat(self) -> list[Instance]:
        """Chat's instances that hold GPUs."""
        mine = (each for each in self.orchestrator.now.instances if each.pool == CHAT)
        return [each for each in mine if each.phase is not Phase.GONE]


def made(order: Order, phase: Phase = Phase.SERVING) -> Instance:
    """What an order asks for."""
    base = member("chat-8b-05", CHAT, order.place.node, order.place.gpus[0], phase)
    return replace(base, instance_id=order.instance)


def does_nothing(_world: Hostile, _order: Order) -> None:
    """It said yes."""


def never_answers(world: Hostile, _order: Order) -> None:
    world.clock.pass_s(1.5)
    raise OutcomeUnknown("no whole answer in time")


@pytest.mark.parametrize("whim", [does_nothing, never_answers])
def test_an_order_without_effect_is_repeated_at_its_pace_and_nobody_else_is_ordered_instead(
    whim: Callable[[Hostile, Order], None],
) -> None:
    world = Hostile(whim)
    world.surge()
    begun = world.moves[0].since
    world.until(lambda: not world.moves)
    assert PATIENCE_S <= world.clock.now - begun < PATIENCE_S + 3 * STEP_S
    assert len({(order.instance, order.place) for _, order in world.asked}) == 1
    times = [at for at, _ in world.asked]
    assert len(times) > 1
    assert all(later - earlier >= AGAIN_S for earlier, later in pairwise(times))
    assert len({order.action for _, order in world.asked}) == len(world.asked), "each under its own name"


@pytest.mark.parametrize("whim", [does_nothing, never_answers])
def test_where_nothing_came_is_left_alone_and_growth_is_found_elsewhere(
    whim: Callable[[Hostile, Order], None],
) -> None:
    world = Hostile(whim)
    world.surge()
    world.until(lambda: not world.moves)
    failed = world.asked[0][1].place
    assert failed == Place(HOME, (4,))
    assert list(world.state.shunned) == ["chat-8b@n1:4"]
    world.whim = Hostile.obeys
    for _ in range(4):
        world.step()
    assert failed not in [Place(each.node, each.gpus) for each in world.chat()]
    assert len(world.chat()) == 5


def test_an_effect_that_comes_late_is_awaited_and_never_doubled() -> None:
    """Nothing shows for 20 s, then it loads for a minute, and only then serves."""
    world = Hostile(does_nothing)
    world.surge()
    order, begun = world.asked[0][1], world.clock.now
    for phase, until_s in ((None, 20.0), (Phase.LOADING, 80.0), (Phase.SERVING, 100.0)):
        if phase is not None:
            world.appears(made(order, phase))
        while world.clock.now < begun + until_s:
            world.step()
    assert {each.instance for _, each in world.asked} == {order.instance}
    last = max(at for at, _ in world.asked)
    assert last < begun + 20.0 + STEP_S, "once it is seen to come it is not asked again"
    assert len(world.chat()) == 5
    assert world.moves == ()
    assert {state for state, _ in world.of(ActionKind.ENSURE, order.instance)} == {ActionState.APPLIED}


@pytest.mark.parametrize(("gpu", "doubled"), [(4, 1), (5, 0)])
def test_an_instance_that_nobody_ordered_is_seen_counted_once_and_ended(gpu: int, doubled: int) -> None:
    """One order, two instances: beside each other, or both on the GPU that was meant for one."""
    world = Hostile(Hostile.obeys)
    stranger = replace(member("chat-8b-06", CHAT, HOME, gpu), managed=False)

    def twice(self: Hostile, order: Order) -> None:
        self.obeys(order)
        self.appears(stranger)
        self.whim = Hostile.obeys

    world.whim = twice
    world.surge()
    assert len(world.chat()) == 6
    found = account(world.orchestrator.now)
    assert (found.unaccounted, sum(dict(found.pools).values()) + found.buffer) == (doubled, found.fleet)
    world.until(lambda: len(world.chat()) == 5, most_doubled=doubled)
    assert account(world.orchestrator.now).unaccounted == 0
    assert stranger.instance_id not in {each.instance_id for each in world.chat()}
    assert ("adopt", stranger.instance_id, "") in world.orchestrator.orders
    assert len({order.instance for _, order in world.asked if order.life is Life.AWAKE}) == 1
