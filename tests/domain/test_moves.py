"""Capacity that moves: who wakes, who makes room, who leaves and when, and what a restart goes on with."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controlplane import forms
from controlplane.domain.conservation import account
from controlplane.domain.decide import decide
from controlplane.domain.fleet import OFF, Life, Node, Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import CycleKind, InstanceId, NodeId, PoolName
from controlplane.domain.loans import balances
from controlplane.domain.moves import step
from controlplane.domain.moves.grow import Grown, grow
from controlplane.domain.moves.progress import AGAIN_S
from controlplane.domain.moves.site import Draft, Site
from controlplane.domain.observation import Hold, Reach
from controlplane.domain.plan import Action, ActionKind, Outcome
from controlplane.domain.policy import Mode, PoolKind
from controlplane.domain.readings import Cause, Missing
from controlplane.domain.state import PoolState, State
from controlplane.domain.words import sentence
from tests.builders import NO_FORECAST, NOW
from tests.domain.fleets import BATCH, CHAT, Yard, batch_policy, chat_policy, member, rules, working_buffer

WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY
SURGE, LULL = 60.0, 2.0


def orders(actions: list[Action]) -> list[tuple[str, str, int]]:
    """Kind, slot and level of what was ordered."""
    return [(each.kind.value, slot_of(each.instance or InstanceId("")), each.level) for each in actions]


def slot_of(name: InstanceId) -> str:
    return name.partition("/")[2].partition("@")[0]


def leaving(yard: Yard) -> list[InstanceId]:
    """Chat instances on their way down."""
    return [each.instance for each in yard.state.moves if each.pool == CHAT and each.to is not Life.AWAKE]


def lull_after_surge() -> Yard:
    """All four sleepers serve, and the surge is over."""
    yard = surging()
    yard.run(12)
    yard.run(1, WEIGHTS)
    assert yard.phases(CHAT).count("serving") == 8
    yard.running[CHAT] = LULL
    return yard


def surging(**changes: object) -> Yard:
    yard = working_buffer()
    yard.policies = rules(chat_policy(), batch_policy(), reserve=4)
    yard.running[CHAT] = SURGE
    for name, value in changes.items():
        setattr(yard, name, value)
    return yard


def test_a_surge_puts_offline_work_to_sleep_and_wakes_a_sleeper_on_its_gpus() -> None:
    yard = surging()
    plan = yard.cycle()
    assert orders(yard.told) == [("close", "batch-eval-01", 0), ("ensure", "batch-eval-01", 1)]
    assert [(each.opens, each.lender, each.borrower) for each in plan.loans] == [(True, "buffer", CHAT)]
    yard.act()
    yard.cycle(WEIGHTS)
    assert ("ensure", "chat-8b-s01", 2) in orders(yard.told)
    yard.act()
    assert yard.phases(CHAT).count("serving") == 5
    assert account(yard.inventory()).unaccounted == 0


def test_nobody_is_woken_before_the_gpus_are_seen_to_be_free() -> None:
    yard = surging(deaf=True)
    for _ in range(4):
        yard.cycle(WEIGHTS if yard.state.moves else CAPACITY)
        yard.act()
        assert not [each for each in yard.told if each.kind is ActionKind.ENSURE and each.level == 2]


def test_both_pools_are_told_in_words_who_moves_for_whom() -> None:
    yard = surging()
    plan = yard.cycle()
    assert sentence(plan.decisions[CHAT]).startswith("chat-8b grows from 4 to 5 instances because its load")
    assert sentence(plan.decisions[BATCH]) == (
        "batch-eval makes room because chat-8b has a higher priority and needs the GPUs of 1 instance."
    )
    assert plan.decisions[BATCH].outcome is Outcome.CHANGE


def test_what_was_borrowed_goes_back_when_the_surge_is_over_and_its_loan_closes() -> None:
    yard = surging()
    yard.run(12)
    assert yard.phases(CHAT).count("serving") == 8
    assert set(yard.loans) == {f"demo/chat-8b-s0{n}@s9k2x1" for n in range(1, 5)}
    yard.running[CHAT] = LULL
    yard.run(40)
    assert yard.loans == {}
    assert yard.phases(CHAT).count("asleep") == 4
    assert yard.phases(BATCH) == ["serving"] * 4, "and the buffer works again"


def test_a_loan_names_the_node_on_which_its_instance_stands() -> None:
    """An orchestrator may bring it up elsewhere in the buffer: the ledger follows what is."""
    yard = lull_after_surge()
    yard.running[CHAT] = 10.0
    name = InstanceId("demo/chat-8b-s01@s9k2x1")
    yard.nodes = (*yard.nodes, Node(NodeId("n3"), "H100", 8))
    yard.instances[name] = replace(yard.instances[name], node=NodeId("n3"))
    plan = yard.cycle()
    assert [(each.opens, each.node) for each in plan.loans if each.instance == name] == [
        (False, "n2"),
        (True, "n3"),
    ]
    assert yard.cycle().loans == ()


def test_a_borrowed_instance_leaves_before_an_own_one() -> None:
    yard = lull_after_surge()
    yard.cycle()
    assert leaving(yard) == ["demo/chat-8b-s03@s9k2x1", "demo/chat-8b-s04@s9k2x1"]


def test_a_drain_waits_until_the_gateway_has_closed_and_counts_nothing_open() -> None:
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 2
    yard.run(3)
    assert name in yard.closed
    assert yard.instances[name].phase is Phase.SERVING, "its two streams are still open"
    yard.in_flight[name] = 0
    yard.run(3)
    assert yard.instances[name].phase is Phase.ASLEEP


def test_one_quiet_look_is_not_a_drain() -> None:
    """B-110: a request may be on its way from gateway to engine when the drain starts."""
    yard = lull_after_surge()
    yard.run(1)
    asleep = {("ensure", slot_of(name), 1) for name in leaving(yard)}
    assert len(asleep) == 2
    for seen, passes_s in (("once", 0.5), ("half a second later", 2.0)):
        yard.cycle(WEIGHTS, pass_s=passes_s)
        assert not asleep & set(orders(yard.told)), f"closed and idle, seen {seen}"
    yard.cycle(WEIGHTS)
    assert asleep <= set(orders(yard.told))


def test_requests_that_come_and_go_between_two_looks_are_no_quiet() -> None:
    """B-110: closed and never busy when looked at, but four more had ended at one look, three at the next."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    order = ("ensure", slot_of(name), 1)
    for ended in (4, 7):
        yard.completed[name] = 1000 + ended
        yard.cycle(WEIGHTS)
        assert order not in orders(yard.told)
        assert name in yard.closed
    yard.cycle(WEIGHTS)
    assert order in orders(yard.told), "nothing has ended there for two seconds"


def test_what_only_the_engine_knows_of_is_waited_for_too() -> None:
    """Streams of a reloaded gateway's old worker: the new one counts none of them."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.at_work[name] = 2
    yard.run(5, WEIGHTS)
    assert (name in yard.closed, yard.instances[name].phase) == (True, Phase.SERVING)
    yard.at_work[name] = 0
    yard.run(3, WEIGHTS)
    assert yard.instances[name].phase is Phase.ASLEEP


def test_open_requests_are_waited_for_no_longer_than_the_policy_says() -> None:
    yard = lull_after_surge()
    capacity = replace(chat_policy().capacity, drain_s=20.0)
    yard.policies = rules(chat_policy(capacity=capacity), batch_policy(), reserve=4)
    yard.cycle(pass_s=19.0)
    yard.act()
    name = leaving(yard)[0]
    yard.in_flight[name] = 1
    yard.cycle(WEIGHTS, pass_s=2.0)
    assert ("ensure", slot_of(name), 1) not in orders(yard.told)
    plan = yard.cycle(WEIGHTS)
    assert ("ensure", slot_of(name), 1) in orders(yard.told)
    reasons = {each.instance: each.code for each in yard.told if each.kind is ActionKind.ENSURE}
    assert reasons == {name: "move_cut", leaving(yard)[1]: "move_returns"}, "only one of them had any open"
    assert "its longest drain is over, and what is still open there is cut" in sentence(plan.decisions[CHAT])


def watched_until(yard: Yard, instant: float) -> None:
    """Cycles at a pace at which nothing is a gap."""
    while yard.now < instant:
        yard.cycle(WEIGHTS, pass_s=min(50.0, instant - yard.now))
        yard.act()


def test_time_in_which_nobody_looked_is_no_time_waited_for_open_requests() -> None:
    """A clock set forward by an hour, or a controller that was away, would else cut what it never watched."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 1
    yard.cycle(WEIGHTS, pass_s=3600.0)
    came_back = yard.now
    watched_until(yard, came_back + 250.0)
    assert name in leaving(yard)
    assert yard.instances[name].phase is Phase.SERVING
    watched_until(yard, came_back + 300.0)
    yard.run(2, WEIGHTS)
    assert yard.instances[name].phase is Phase.ASLEEP, "five minutes of waiting are over"


def test_who_is_out_already_takes_from_what_may_leave() -> None:
    """Design, section 6: losses that nobody asked for consume the budget first."""
    whole, hurt = lull_after_surge(), lull_after_surge()
    lost = next(each for each in sorted(hurt.instances) if hurt.instances[each].phase is Phase.SERVING)
    hurt.instances[lost] = replace(hurt.instances[lost], phase=Phase.UNREACHABLE)
    for yard in (whole, hurt):
        yard.cycle()
    assert len(leaving(whole)) - len(leaving(hurt)) == 1


def test_growth_calls_back_who_was_about_to_leave() -> None:
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 2
    yard.run(1)
    assert name in leaving(yard)
    yard.running[CHAT] = SURGE
    yard.cycle()
    assert name not in leaving(yard)
    yard.cycle(WEIGHTS)
    assert ("open", slot_of(name), 1) in orders(yard.told)


def test_what_has_not_come_up_yet_leaves_before_what_serves() -> None:
    """B-106: three run and two start; of two that leave it is those that start."""
    yard = working_buffer(serving=3, sleepers=0, guests=0)
    for number in (4, 5):
        starting = member(f"chat-8b-{number:02d}", CHAT, yard.nodes[0].node_id, number - 1, Phase.LOADING)
        yard.instances[starting.instance_id] = starting
    yard.running[CHAT] = LULL
    yard.run(2)
    assert {slot for kind, slot, level in orders(yard.told) if level == 0} == set()
    gone = {each.instance_id for each in yard.instances.values() if each.phase is Phase.GONE}
    assert gone == {"demo/chat-8b-04@s9k2x1", "demo/chat-8b-05@s9k2x1"}
    assert yard.phases(CHAT).count("serving") == 3


@pytest.mark.parametrize(("needed", "breaches", "taken"), [(90, 9, 0), (80, 9, 2), (80, 0, 0)])
def test_the_reserve_is_left_alone_unless_a_breach_of_high_priority_breaks_it(
    needed: int, breaches: int, taken: int
) -> None:
    yard = working_buffer(serving=8, sleepers=0, guests=0)
    bounds = replace(chat_policy().capacity, maximum=20)
    yard.policies = rules(chat_policy(capacity=bounds), reserve=8, reserve_priority=needed)
    yard.running[CHAT] = SURGE
    yard.state = State({CHAT: PoolState(breaches=breaches)})
    assert len(yard.cycle().loans) == taken


def test_an_empty_buffer_says_how_many_gpus_are_missing() -> None:
    yard = working_buffer(serving=8, sleepers=0, guests=0)
    yard.nodes = (yard.nodes[0],)
    yard.policies = rules(chat_policy(capacity=replace(chat_policy().capacity, maximum=12)))
    yard.running[CHAT] = SURGE
    plan = yard.cycle()
    decision = plan.decisions[CHAT]
    assert (decision.outcome, decision.actions, yard.state.moves) == (Outcome.NOTHING_TO_DO, (), ())
    assert "there is room for 0 of 2 instances, and 2 GPUs are missing" in sentence(decision)


def test_growth_starts_a_new_instance_on_the_pools_own_node_before_it_borrows() -> None:
    yard = working_buffer(serving=4, sleepers=0)
    yard.running[CHAT] = SURGE
    plan = yard.cycle()
    order = next(each for each in yard.told if each.kind is ActionKind.ENSURE)
    assert order.instance is not None
    assert order.instance == f"demo/chat-8b-05@{order.instance.rpartition('@')[2]}"
    assert order.place is not None
    assert (order.place.node, order.place.gpus, order.seen) == ("n1", (4,), 0)
    assert plan.loans == ()
    yard.act()
    assert yard.phases(CHAT).count("serving") == 5


def test_an_order_that_is_accepted_and_not_carried_out_is_repeated_later_and_given_up_in_the_end() -> None:
    yard = working_buffer(serving=4, sleepers=0)
    yard.running[CHAT], yard.deaf = SURGE, True
    asked: list[float] = []
    places = set()
    for _ in range(100):
        yard.cycle(WEIGHTS if asked else CAPACITY)
        if any(each.kind is ActionKind.ENSURE for each in yard.told):
            asked.append(yard.now)
            places |= {each.place for each in yard.told}
        yard.act()
    assert len(places) == 1
    assert all(later - earlier >= AGAIN_S for earlier, later in pairwise(asked))
    yard.cycle(WEIGHTS, pass_s=300.0)
    yard.cycle(WEIGHTS)
    assert yard.state.moves == ()
    assert list(yard.state.shunned) == ["chat-8b@n1:4"]
    yard.cycle(CAPACITY)
    elsewhere = [each.place.gpus for each in yard.told if each.place is not None]
    assert elsewhere, "growth goes on where it can"
    assert (4,) not in elsewhere


@pytest.mark.parametrize("phase", [Phase.UNREACHABLE, Phase.HOT])
def test_who_does_not_answer_for_a_moment_is_not_ended_with_requests_open(phase: Phase) -> None:
    """A health check that fails once ends no stream: the gateway counts two of them."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 2
    yard.run(1)
    yard.instances[name] = replace(yard.instances[name], phase=phase)
    yard.cycle()
    assert ("ensure", slot_of(name), 1) not in orders(yard.told)
    yard.in_flight[name] = 0
    yard.cycle()
    assert ("ensure", slot_of(name), 1) in orders(yard.told)


@pytest.mark.parametrize("code", ["move_returns", "move_evicted"])
def test_who_leaves_its_pool_meanwhile_is_ended_for_it_no_more(code: str) -> None:
    """B-113: whoever gives an instance to another pool takes it out of this one's hands."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    moves = (replace(each, code=code, until=yard.now) for each in yard.state.moves)
    yard.state = replace(yard.state, moves=tuple(moves))
    yard.instances[name] = replace(yard.instances[name], pool=BATCH)
    yard.cycle(WEIGHTS)
    assert slot_of(name) not in [slot for kind, slot, _ in orders(yard.told) if kind == "ensure"]
    assert name not in [each.instance for each in yard.state.moves]


def test_a_sleeper_on_a_node_that_nobody_knows_keeps_no_pool_from_growing() -> None:
    yard = surging()
    lost = member("chat-8b-s00", CHAT, NodeId("n9"), 0, Phase.ASLEEP)
    yard.instances[lost.instance_id] = lost
    plan = yard.cycle()
    assert plan.decisions[CHAT].outcome is Outcome.CHANGE
    assert lost.instance_id not in [each.instance for each in yard.state.moves]


def test_who_makes_room_for_another_pool_is_not_called_back() -> None:
    """Its GPU is promised to a pool of higher priority, which would wait for it in vain."""
    yard = lull_after_surge()
    yard.policies = rules(chat_policy(), batch_policy(priority=90, kind=PoolKind.ONLINE), reserve=4)
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 2
    yard.run(1)
    leaves = next(each for each in yard.state.moves if each.instance == name)
    other = InstanceId("demo/batch-eval-09@s1")
    waits = replace(
        leaves, instance=other, pool=BATCH, to=Life.AWAKE, code="move_starts", until=yard.now + 99.0
    )
    yard.state = replace(
        yard.state, moves=tuple(sorted((*yard.state.moves, waits), key=lambda m: m.instance))
    )
    yard.running[CHAT] = SURGE
    yard.cycle()
    assert name in leaving(yard)


def test_who_waits_for_a_drain_is_not_late_before_the_drain_may_be_over() -> None:
    """Batch wakes where chat leaves: its patience begins when chat's longest wait is over."""
    yard = lull_after_surge()
    yard.run(1)
    name = leaving(yard)[0]
    yard.in_flight[name] = 2
    yard.run(2)
    leaves = next(each for each in yard.state.moves if each.instance == name)
    waits = next(each for each in yard.state.moves if each.pool == BATCH and each.place == leaves.place)
    assert waits.until > leaves.until
    watched_until(yard, leaves.until)
    yard.run(3)
    yard.cycle(WEIGHTS)
    assert yard.instances[name].phase is Phase.ASLEEP
    assert yard.state.shunned == {}
    assert yard.instances[waits.instance].phase is Phase.SERVING


def test_a_clock_that_is_set_back_delays_no_move() -> None:
    """An hour back: the order is sent again at its pace, and given up when its time is over."""
    yard = working_buffer(serving=4, sleepers=0)
    yard.running[CHAT], yard.deaf = SURGE, True
    yard.cycle()
    lasts = yard.state.moves[0].until - yard.state.moves[0].since
    yard.now -= 3600.0
    begun, asked = yard.now, 0
    while yard.state.moves and yard.now < begun + 2 * lasts:
        yard.cycle(WEIGHTS)
        asked += sum(each.kind is ActionKind.ENSURE for each in yard.told)
    assert abs(yard.now - begun - lasts) < 2 * AGAIN_S
    assert asked > lasts / AGAIN_S / 2


def test_a_restart_goes_on_with_a_move_as_one_that_never_stopped() -> None:
    yard = surging()
    yard.run(1)
    again = forms.from_json(State, forms.to_json(yard.state))
    seen = yard.seen(WEIGHTS)
    assert decide(seen, yard.policies, again, NO_FORECAST) == decide(
        seen, yard.policies, yard.state, NO_FORECAST
    )
    assert again.moves


def test_nothing_moves_on_an_old_inventory() -> None:
    yard = surging()
    seen = replace(yard.seen(CAPACITY), inventory=Missing(Cause.QUERY_FAILED, "no answer"))
    plan, state = decide(seen, yard.policies, yard.state, NO_FORECAST)
    assert (plan.loans, state.moves) == ((), ())
    moved = decide(yard.seen(CAPACITY), yard.policies, yard.state, NO_FORECAST)[1]
    assert moved.moves, "with the inventory they do"


def test_a_pool_that_only_observes_moves_nothing_and_still_says_what_it_would_do() -> None:
    yard = surging()
    yard.policies = rules(chat_policy(capacity_mode=Mode.OBSERVE), batch_policy(), reserve=4)
    plan = yard.cycle()
    assert yard.state.moves == ()
    assert [each.kind for each in plan.decisions[CHAT].actions] == [ActionKind.SET_INSTANCES]
    assert "would grow from 4 to 5" in sentence(plan.decisions[CHAT])


def test_a_held_pool_keeps_its_instances_and_gives_none_up() -> None:
    yard = surging()
    yard.holds = [Hold(BATCH, "ann", "a release", NOW - 10.0)]
    yard.cycle()
    assert not any(each.pool == BATCH for each in yard.state.moves)


@pytest.mark.parametrize(("reach", "asked"), [(Reach.NOTHING, ()), (Reach.REPLICAS, ((CHAT, 4),))])
def test_where_instances_cannot_be_asked_for_the_number_is_the_order(
    reach: Reach, asked: tuple[tuple[PoolName, int], ...]
) -> None:
    yard = surging()
    seen = replace(yard.seen(CAPACITY), reach=reach, inventory=replace(yard.inventory(), asked=asked))
    plan, state = decide(seen, yard.policies, yard.state, NO_FORECAST)
    assert state.moves == ()
    assert [each.kind for each in plan.decisions[CHAT].actions] == [ActionKind.SET_INSTANCES]


def test_a_pool_whose_part_breaks_changes_nothing_of_another_pools_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_short() -> Yard:
        yard = surging()
        yard.instances.pop(InstanceId("demo/batch-eval-04@s9k2x1"))
        return yard

    whole = one_short().cycle()
    real = grow

    def broken(site: Site, draft: Draft, pool: PoolName, count: int) -> tuple[Draft, Grown]:
        if pool == BATCH:
            raise RuntimeError("a defect")
        return real(site, draft, pool, count)

    monkeypatch.setattr(step, "grow", broken)
    plan = one_short().cycle()
    assert whole.decisions[BATCH].outcome is not Outcome.FAILED
    assert plan.decisions[BATCH].outcome is Outcome.FAILED
    assert plan.decisions[CHAT] == whole.decisions[CHAT]


def test_an_instance_that_others_made_is_adopted_on_the_record_before_it_is_ordered_about() -> None:
    yard = surging()
    name = InstanceId("demo/batch-eval-01@s9k2x1")
    yard.instances[name] = replace(yard.instances[name], managed=False)
    yard.cycle()
    assert orders(yard.told)[:3] == [
        ("close", "batch-eval-01", 0),
        ("adopt", "batch-eval-01", 1),
        ("ensure", "batch-eval-01", 1),
    ]


class Fleet(RuleBasedStateMachine):
    """Any weather: loads, cycles of both kinds, orders obeyed or not, instances that die or hang."""

    @initialize(reserve=st.integers(0, 8), serving=st.integers(2, 8), guests=st.integers(0, 4))
    def begin(self, reserve: int, serving: int, guests: int) -> None:
        self.yard = working_buffer(serving, 4, guests)
        bounds = replace(chat_policy().capacity, maximum=20)
        self.yard.policies = rules(chat_policy(capacity=bounds), batch_policy(), reserve=reserve)

    @rule(load=st.sampled_from([0.0, 5.0, 30.0, 60.0]), kind=st.sampled_from(CycleKind), obeys=st.booleans())
    def tick(self, load: float, kind: CycleKind, obeys: bool) -> None:
        self.yard.running[CHAT] = load
        self.yard.deaf = not obeys
        self.yard.run(1, kind)

    @rule(number=st.integers(0, 20), open_=st.integers(0, 3))
    def busy(self, number: int, open_: int) -> None:
        names = sorted(self.yard.instances)
        self.yard.in_flight[names[number % len(names)]] = open_

    @rule(number=st.integers(0, 20))
    def dies(self, number: int) -> None:
        names = sorted(self.yard.instances)
        if len(names) > 3:
            self.yard.instances.pop(names[number % len(names)])

    @rule(seconds=st.sampled_from([10.0, 120.0, 700.0]))
    def later(self, seconds: float) -> None:
        self.yard.now += seconds

    @invariant()
    def no_gpu_is_created_lost_or_in_two_hands(self) -> None:
        found = account(self.yard.inventory())
        assert found.unaccounted == 0
        assert sum(dict(found.pools).values()) + found.buffer + found.unavailable == found.fleet
        held = Counter(
            (each.node, gpu)
            for each in self.yard.instances.values()
            if each.phase not in OFF
            for gpu in each.gpus
        )
        assert not held or max(held.values()) == 1

    @invariant()
    def the_ledger_sums_to_the_fleet(self) -> None:
        assert sum(balances(self.yard.nodes, self.yard.loans.values()).values()) == 16

    @invariant()
    def nobody_serves_on_borrowed_gpus_without_a_loan(self) -> None:
        borrowed = {
            each.instance_id
            for each in self.yard.instances.values()
            if each.pool == CHAT and each.node == "n2" and each.phase not in OFF
        }
        assert borrowed <= set(self.yard.loans)

    @invariant()
    def nobody_is_ended_with_requests_open_but_offline_work(self) -> None:
        for order in self.yard.told:
            if order.kind is ActionKind.ENSURE and order.instance and order.level < 2 and order.pool == CHAT:
                rows = {row.instance_id: row for row in self.yard.gateway().backends[0].servers}
                row = rows.get(order.instance)
                assert row is None or row.state is ServerState.CLOSED


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@given(st.permutations(["chat-8b-01", "chat-8b-02", "chat-8b-03", "chat-8b-04"]))
def test_the_order_in_which_instances_are_told_changes_nothing(order: list[str]) -> None:
    yard, other = surging(), surging()
    head = {InstanceId(f"demo/{slot}@s9k2x1"): None for slot in order}
    other.instances = {**{name: other.instances[name] for name in head}, **other.instances}
    assert yard.cycle() == other.cycle()
    assert yard.state == other.state
