"""Where there is no room: what is said of it, and that nothing else is touched meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.fleet import Node, Phase
from controlplane.domain.ids import InstanceId, NodeId
from controlplane.domain.moves import step
from controlplane.domain.plan import Outcome
from controlplane.domain.policy import Mode, PoolKind
from controlplane.domain.words import sentence
from tests.domain.fleets import BATCH, CHAT, batch_policy, chat_policy, rules, working_buffer

SURGE = 60.0


def test_a_pool_with_nowhere_to_go_touches_nothing_and_grows_when_a_gpu_comes_free() -> None:
    """Its own node is full, the buffer is full of work that has a higher priority, and one of it ends."""
    yard = working_buffer(serving=8, sleepers=0, guests=8)
    bounds = replace(chat_policy().capacity, maximum=12)
    online = batch_policy(kind=PoolKind.ONLINE, priority=90, capacity_mode=Mode.OBSERVE)
    yard.policies = rules(chat_policy(capacity=bounds), online)
    yard.running[CHAT] = SURGE
    for plan in yard.run(4):
        assert plan.decisions[CHAT].explanation.code == "placement_short"
        assert (yard.state.moves, yard.told) == ((), [])
    last = InstanceId("demo/batch-eval-08@s9k2x1")
    yard.instances[last] = replace(yard.instances[last], phase=Phase.GONE)
    yard.run(1)
    assert [each.place.gpus for each in yard.told if each.place is not None] == [(7,)]
    assert yard.phases(CHAT).count("serving") == 9


@pytest.mark.parametrize(
    ("tp", "code"), [(1, "placement_short"), (3, "placement_short"), (16, "placement_no_shape")]
)
def test_what_fits_no_node_at_all_is_said_apart_from_what_does_not_fit_now(tp: int, code: str) -> None:
    """A node of 8 has two blocks of 3 GPUs and leaves two; it has none of 16, however long one waits."""
    yard = working_buffer(serving=8, sleepers=0, guests=8)
    bounds = replace(chat_policy().capacity, maximum=12)
    online = batch_policy(kind=PoolKind.ONLINE, priority=90, capacity_mode=Mode.OBSERVE)
    yard.policies = rules(chat_policy(capacity=bounds, tp=tp), online)
    yard.running[CHAT] = SURGE
    decision = yard.cycle().decisions[CHAT]
    assert (decision.outcome, decision.explanation.code) == (Outcome.NOTHING_TO_DO, code)
    if code == "placement_no_shape":
        assert "no node of its own or of the buffer has 16 GPUs for one instance" in sentence(decision)


def test_a_node_of_another_pool_is_no_room_however_large_it_is() -> None:
    """In the buffer it takes one of the two that are wanted."""
    yard = working_buffer(serving=8, sleepers=0, guests=0)
    yard.policies = rules(chat_policy(capacity=replace(chat_policy().capacity, maximum=12), tp=16))
    yard.running[CHAT] = SURGE
    large = Node(NodeId("n3"), "H100", 16)
    for owner, code in ((BATCH, "placement_no_shape"), (None, "placement_short")):
        yard.nodes = (*yard.nodes[:2], replace(large, pool=owner))
        steps = yard.cycle().decisions[CHAT].explanation.steps
        assert [each.code for each in steps if each.rule == step.ID] == [code]
