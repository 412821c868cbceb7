"""The floor: who holds which GPU of which node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controlplane.domain.fleet import OFF, Instance, Inventory, Node, Place
from controlplane.domain.ids import NodeId

BROKEN = ""
"""The holder of a GPU that is unavailable."""

Gpu = tuple[NodeId, int]


@dataclass(frozen=True, slots=True)
class Floor:
    """Nodes by id; `holders`: the id of the awake instance on each GPU that has one."""

    nodes: Mapping[NodeId, Node]
    holders: Mapping[Gpu, str]

    def blockers(self, place: Place) -> frozenset[str]:
        """Who holds any GPU of a place."""
        found = (self.holders.get(gpu) for gpu in gpus_of(place))
        return frozenset(each for each in found if each is not None)

    def free(self, node: NodeId) -> int:
        """How many GPUs of a node nobody holds."""
        return sum((node, index) not in self.holders for index in range(self.nodes[node].gpu_count))


def floor_of(inventory: Inventory) -> Floor:
    """The floor as the orchestrator tells it.

    Where it does not say which GPUs an instance holds, or which are broken, the lowest free ones, and
    the highest, are taken for it: then a count is right although an index is not.
    """
    nodes = {each.node_id: each for each in inventory.nodes}
    holders: dict[Gpu, str] = {}
    awake = [each for each in inventory.instances if each.phase not in OFF and each.node in nodes]
    for each in sorted(awake, key=lambda each: (not each.gpus, each.instance_id)):
        for gpu in _held(each, nodes, holders):
            holders[gpu] = each.instance_id
    for node in inventory.nodes:
        for gpu in _free_first(node, holders, range(node.gpu_count - 1, -1, -1), node.unavailable_gpus):
            holders[gpu] = BROKEN
    return Floor(nodes, holders)


def gpus_of(place: Place) -> tuple[Gpu, ...]:
    """A place's GPUs, as the floor names them."""
    return tuple((place.node, index) for index in place.gpus)


def blocks(node: Node, size: int) -> Iterator[Place]:
    """The places of `size` GPUs on a node, aligned, from the lowest index on."""
    for first in range(0, node.gpu_count - size + 1, size):
        yield Place(node.node_id, tuple(range(first, first + size)))


def place_of(instance: Instance, floor: Floor) -> Place:
    """Where an instance stands; by what the floor assumes, where the orchestrator does not say."""
    if instance.gpus:
        return Place(instance.node, instance.gpus)
    mine = sorted(
        index
        for (node, index), holder in floor.holders.items()
        if holder == instance.instance_id and node == instance.node
    )
    return Place(instance.node, tuple(mine))


def _held(each: Instance, nodes: Mapping[NodeId, Node], holders: Mapping[Gpu, str]) -> Iterable[Gpu]:
    if each.gpus:
        return [(each.node, index) for index in each.gpus]
    node = nodes[each.node]
    return _free_first(node, holders, range(node.gpu_count), each.tp)


def _free_first(node: Node, holders: Mapping[Gpu, str], order: Iterable[int], count: int) -> list[Gpu]:
    free = [(node.node_id, index) for index in order if (node.node_id, index) not in holders]
    return free[:count]
