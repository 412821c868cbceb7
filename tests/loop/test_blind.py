"""Without sight nothing shrinks and no weight moves: real decisions, driven through a source that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.adapters.memory.metrics import SILENCE
from controlplane.domain import weights
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.observation import SourceHealth
from controlplane.domain.plan import ActionKind, Outcome
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause, PoolSignal, Signal
from controlplane.domain.view import PoolView
from controlplane.ports import MetricsAnswer
from tests.builders import instances, policies, pool_policy, steady_pool
from tests.loop.world import CHAT, SLOW, World, answer

Lost = Callable[[World, CycleKind, float], MetricsAnswer]


def stopped(_world: World, _kind: CycleKind, _now: float) -> MetricsAnswer:
    return SILENCE


def hanging(world: World, kind: CycleKind, now: float) -> MetricsAnswer:
    """Every query ran into its time limit."""
    return _nothing(world, kind, now, Cause.QUERY_TIMEOUT, (("running", "no answer in 2 s"),))


def empty(world: World, kind: CycleKind, now: float) -> MetricsAnswer:
    """It answers, quickly and with nothing: its rules or its discovery are gone."""
    return _nothing(world, kind, now, Cause.EMPTY, ())


def half(world: World, kind: CycleKind, now: float) -> MetricsAnswer:
    """Every second instance is not there, and nobody says why."""
    whole = world._seen(kind, world.rules, now)
    kept = {each.instance_id for each in world.members[::2]}
    return replace(
        whole,
        instances={
            signal: {id_: reading for id_, reading in readings.items() if id_ in kept}
            for signal, readings in whole.instances.items()
        },
    )


def _nothing(
    world: World, kind: CycleKind, now: float, cause: Cause, failures: tuple[tuple[str, str], ...]
) -> MetricsAnswer:
    asked = world._seen(kind, world.rules, now).instances
    return MetricsAnswer({}, {}, SourceHealth(4, failures), dict.fromkeys(asked, cause))


LOSSES = pytest.mark.parametrize("lost", [stopped, hanging, empty, half])


@LOSSES
def test_weights_hold_while_the_source_is_lost_and_follow_again_afterwards(lost: Lost) -> None:
    world = World().settled()
    levels = dict(world.gateway.servers[CHAT])
    world.speed = SLOW
    seeing = world._seen
    world.metrics.say(lambda kind, _policies, now: lost(world, kind, now))
    for _ in range(6):
        report = world.cycle()
        assert report.plan is not None
        assert report.plan.decisions[CHAT].outcome is Outcome.HELD
    assert world.gateway.servers[CHAT] == levels
    world.metrics.say(seeing)
    for _ in range(20):
        world.cycle()
    assert world.server(4).weight < world.server(1).weight


@LOSSES
def test_a_restarted_gateway_gets_its_last_good_weights_while_the_source_is_lost(lost: Lost) -> None:
    world = World().settled()
    world.speed = SLOW
    for _ in range(8):
        world.cycle()
    levels = dict(world.gateway.servers[CHAT])
    world.metrics.say(lambda kind, _policies, now: lost(world, kind, now))
    world.cycle()
    world.gateway.restart()
    assert world.gateway.servers[CHAT] != levels
    world.cycle()
    assert world.gateway.servers[CHAT] == levels


@LOSSES
def test_nothing_shrinks_while_the_source_is_lost(lost: Lost) -> None:
    world = World()
    world.running = 0.0
    assert min(_sizes(world, 30)) < 4
    world = World()
    world.running = 0.0
    _sizes(world, 5)
    world.metrics.say(lambda kind, _policies, now: lost(world, kind, now))
    assert min(_sizes(world, 30)) == 4


def _sizes(world: World, cycles: int) -> list[float]:
    """Sizes asked for in so many capacity cycles."""
    sizes = []
    for _ in range(cycles):
        plan = world.cycle(CycleKind.CAPACITY, after_s=15.0).plan
        assert plan is not None
        after = plan.decisions[CHAT].explanation.after
        assert after is not None
        sizes.append(after)
    return sizes


def test_a_rule_that_breaks_in_one_pool_leaves_the_other_pools_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop goes on, records the failure with its reason, and acts for everybody else."""
    vision = PoolName("vision")
    rules = policies(pool_policy("chat-8b"), pool_policy("vision"))
    world = World((*instances(4), *instances(4, "vision")), rules)
    both = {each.instance_id: server for each in world.members for server in [world.server_of(each)]}
    world.gateway.servers = {
        pool: {each.instance_id: both[each.instance_id] for each in world.members if each.pool == pool}
        for pool in (CHAT, vision)
    }
    world.metrics.say(lambda kind, _policies, now: _two_pools(world, kind, now))
    real = weights.weight_view

    def broken(pool: PoolView, served: object) -> object:
        if pool.policy.pool == CHAT:
            raise ZeroDivisionError("a rule's mistake")
        return real(pool, served)  # type: ignore[arg-type]

    world.settled()
    world.speed = SLOW * 2
    monkeypatch.setattr(weights, "weight_view", broken)
    report = world.cycle()
    assert report.plan is not None
    failed = report.plan.decisions[CHAT]
    assert failed.outcome is Outcome.FAILED
    assert "a rule's mistake" in failed.explanation.steps[0].detail
    assert {action.pool for _, action in world.gateway.sent} == {vision}
    assert len(world.ledger.records[-1].plan.decisions) == 2
    monkeypatch.setattr(weights, "weight_view", real)
    world.gateway.sent.clear()
    world.cycle()
    assert CHAT in {action.pool for _, action in world.gateway.sent}


def _two_pools(world: World, kind: CycleKind, now: float) -> MetricsAnswer:
    said = answer(
        steady_pool(members=world.members, running=[10.0] * 8, speed=_eight(world.speed), kind=kind, now=now)
    )
    return replace(said, pools=dict.fromkeys([CHAT, PoolName("vision")], said.pools[CHAT]))


def _eight(speed: tuple[float, ...]) -> tuple[float, ...]:
    return speed if len(speed) == 8 else speed * 2


def test_a_single_impossible_sample_moves_no_weight_and_no_size() -> None:
    """B-007: the adapter drops it, and a gap in one row is no reason for anything."""
    world = World().settled()
    calm = dict(world.gateway.servers[CHAT])

    def garbage(kind: CycleKind, rules: Policies, now: float) -> MetricsAnswer:
        whole = world._seen(kind, rules, now)
        id_ = world.members[0].instance_id
        gaps = {
            signal: {
                key: each for key, each in readings.items() if key != id_ or signal is not Signal.STEP_TIME
            }
            for signal, readings in whole.instances.items()
        }
        return replace(whole, instances=gaps, health=replace(whole.health, rejected_samples=1))

    world.metrics.say(garbage)
    for kind in (CycleKind.WEIGHTS, CycleKind.CAPACITY):
        report = world.cycle(kind)
        assert report.plan is not None
        assert report.plan.decisions[CHAT].outcome is not Outcome.CHANGE
    assert world.gateway.servers[CHAT] == calm
    assert world.levels(ActionKind.SET_WEIGHT) == {}


def test_a_lost_pool_reading_is_said_with_its_cause_in_the_record() -> None:
    world = World()
    before = world.cycle(CycleKind.CAPACITY).observation
    world.metrics.say(lambda kind, _policies, now: hanging(world, kind, now))
    after = world.cycle(CycleKind.CAPACITY).observation
    assert before is not None
    assert after is not None
    assert PoolSignal.ARRIVALS in before.pools[CHAT]
    assert after.pools == {}
    assert after.source.failures == (("running", "no answer in 2 s"),)
    assert world.ledger.records[-1].frame.observation == after
