"""Orders as a gauge: one number a pool, and nothing that pretends to be more."""

from __future__ import annotations

import pytest

from controlplane.adapters.orchestrators.gauge import GaugeOrchestrator
from controlplane.domain.fleet import Instance, Life, Place
from controlplane.domain.ids import ActionId, InstanceId, NodeId, PoolName
from controlplane.domain.observation import Reach
from controlplane.ports import Order, Refused, Unavailable
from tests.builders import NOW, instances

CHAT = PoolName("chat-8b")
ACTION = ActionId.parse("demo:capacity:1:chat-8b:0")


def gauge(levels: dict[PoolName, int]) -> GaugeOrchestrator:
    return GaugeOrchestrator(lambda: instances(2), levels, lambda: NOW)


def test_the_last_number_asked_for_stands_and_is_seen_in_the_inventory() -> None:
    levels: dict[PoolName, int] = {}
    orchestrator = gauge(levels)
    assert orchestrator.inventory().asked == ()
    for count in (3, 5, 5):
        orchestrator.set_instances(ACTION, CHAT, count)
    assert levels == {CHAT: 5}
    assert orchestrator.inventory().asked == ((CHAT, 5),)


def test_it_says_what_exists_and_knows_no_nodes() -> None:
    orchestrator = gauge({})
    seen = orchestrator.inventory()
    assert (seen.taken_at, seen.nodes, seen.instances) == (NOW, (), instances(2))
    assert orchestrator.reach is Reach.REPLICAS


def test_orders_about_one_instance_are_refused_with_the_reason() -> None:
    one, place = InstanceId("demo/chat-8b-01@s1"), Place(NodeId("n1"), (0,))
    with pytest.raises(Refused, match="only the number of chat-8b can be asked for"):
        gauge({}).ensure(Order(ACTION, one, CHAT, place, Life.AWAKE))
    with pytest.raises(Refused, match="managed by whoever follows the gauge"):
        gauge({}).adopt(ACTION, one)


def test_where_nobody_says_what_exists_it_does_not_know_either() -> None:
    def silent() -> tuple[Instance, ...]:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable, match="no answer"):
        GaugeOrchestrator(silent, {}, lambda: NOW).inventory()
