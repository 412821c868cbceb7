"""Every GPU is counted once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.conservation import account
from controlplane.domain.fleet import OFF, Instance, Inventory, Node, Phase
from controlplane.domain.ids import NodeId, PoolName
from tests.builders import NOW, instance

CHAT, VISION = PoolName("chat-8b"), PoolName("vision")


@st.composite
def fleets(draw: st.DrawFn) -> Inventory:
    """Nodes of 8, owned or spare, partly broken, with instances of any pool that fit."""
    nodes, members = [], []
    for number in range(draw(st.integers(0, 5))):
        owner = draw(st.sampled_from([CHAT, VISION, None]))
        node = Node(NodeId(f"n{number}"), "H100", 8, owner, unavailable_gpus=draw(st.integers(0, 8)))
        nodes.append(node)
        for slot in range(draw(st.integers(0, 2))):
            pool = draw(st.sampled_from(["chat-8b", "vision"]))
            tp, phase = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from(Phase))
            members.append(instance(f"{number}-{slot}", pool, node=node.node_id, tp=tp, phase=phase))
    return Inventory(NOW, tuple(nodes), tuple(members))


@given(fleets())
def test_pools_and_buffer_and_unavailable_are_the_fleet(inventory: Inventory) -> None:
    accounted = account(inventory)
    parts = [gpus for _, gpus in accounted.pools] + [accounted.buffer, accounted.unavailable]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == accounted.fleet
    assert accounted.unaccounted == 0


GPUS = [(node, gpu) for node in ("n0", "n1", "n2") for gpu in range(4)]
HANDS = st.tuples(st.sampled_from([*GPUS, ("ghost", 0)]), st.sampled_from(["chat-8b", "vision"]))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), HANDS),
        st.tuples(st.just("goes"), st.integers(0, 30)),
        st.tuples(st.just("sleeps"), st.integers(0, 30)),
        st.tuples(st.just("wakes"), st.integers(0, 30)),
    ),
    max_size=30,
)


def after(members: list[Instance], event: tuple[str, Any], number: int) -> list[Instance]:
    """The fleet's instances after somebody came, went, fell asleep or woke, whether there is room or not."""
    what, value = event
    if what == "comes":
        (node, gpu), pool = value
        return [*members, instance(f"i-{number}", pool, node=NodeId(node), gpus=(gpu,))]
    if not members:
        return members
    chosen = members[value % len(members)]
    rest = [each for each in members if each is not chosen]
    phase = {"sleeps": Phase.ASLEEP, "wakes": Phase.SERVING}.get(what)
    return rest if phase is None else [*rest, replace(chosen, phase=phase)]


@given(EVENTS)
def test_after_every_step_of_any_history_a_gpu_is_counted_once_or_said_to_be_counted_twice(
    events: list[tuple[str, Any]],
) -> None:
    owners = (CHAT, None, VISION)
    nodes = tuple(Node(NodeId(f"n{number}"), "H100", 4, owner) for number, owner in enumerate(owners))
    members: list[Instance] = []
    for number, event in enumerate(events):
        members = after(members, event, number)
        found = account(Inventory(NOW, nodes, tuple(members)))
        assert sum(dict(found.pools).values()) + found.buffer + found.unavailable == found.fleet == 12
        hands = Counter((each.node, each.gpus) for each in members if each.phase not in OFF)
        twice = sum(count - 1 for (node, _), count in hands.items() if node != "ghost")
        nowhere = sum(count for (node, _), count in hands.items() if node == "ghost")
        assert found.unaccounted == twice + nowhere


def test_a_borrowed_gpu_counts_where_it_serves() -> None:
    nodes = (Node(NodeId("n1"), "H100", 8, CHAT), Node(NodeId("n2"), "H100", 8))
    home = Inventory(NOW, nodes, ())
    lent = replace(home, instances=(instance("a", node=NodeId("n2"), tp=2, lent_by=PoolName("buffer")),))
    assert (dict(account(home).pools), account(home).buffer) == ({CHAT: 8}, 8)
    assert (dict(account(lent).pools), account(lent).buffer) == ({CHAT: 10}, 6)


def test_an_instance_holds_its_gpu_from_being_asked_for_on_but_not_asleep_or_gone() -> None:
    spare = Node(NodeId("n1"), "H100", 8)
    held = ((Phase.REQUESTED, 7), (Phase.LOADING, 7), (Phase.WAKING, 7), (Phase.DRAINING, 7))
    for phase, buffer in (*held, (Phase.ASLEEP, 8), (Phase.GONE, 8)):
        assert account(Inventory(NOW, (spare,), (instance("a", phase=phase),))).buffer == buffer


def test_a_broken_gpu_is_unavailable_whoever_uses_it() -> None:
    node = Node(NodeId("n1"), "H100", 8, CHAT, unavailable_gpus=1)
    full = Inventory(NOW, (node,), tuple(instance(f"a{slot}") for slot in range(8)))
    accounted = account(full)
    assert (dict(accounted.pools), accounted.unavailable, accounted.unaccounted) == ({CHAT: 7}, 1, 0)


def test_one_gpu_in_two_hands_is_found_although_the_node_has_room() -> None:
    node = Node(NodeId("n1"), "H100", 8, CHAT)
    apart = Inventory(NOW, (node,), (instance("a", gpus=(0,)), instance("b", gpus=(1,))))
    same = Inventory(NOW, (node,), (instance("a", gpus=(0,)), instance("b", gpus=(0,))))
    asleep = Inventory(NOW, (node,), (instance("a", gpus=(0,)), instance("b", gpus=(0,), phase=Phase.ASLEEP)))
    assert [account(each).unaccounted for each in (apart, same, asleep)] == [0, 1, 0]


def test_counting_twice_is_found() -> None:
    """B-095: the same devices handed out twice, and an instance on a node that nobody knows."""
    node = Node(NodeId("n1"), "H100", 8, CHAT)
    twice = Inventory(NOW, (node,), tuple(instance(f"a{slot}", tp=4) for slot in range(3)))
    ghost = Inventory(NOW, (node,), (instance("a", node=NodeId("n9"), tp=2),))
    assert (account(twice).fleet, account(twice).unaccounted) == (8, 4)
    assert account(ghost).unaccounted == 2
