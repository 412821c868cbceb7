"""Every GPU of the fleet, counted once: sum(pools) + buffer + unavailable = fleet."""

from __future__ import annotations

from collections import Counter

from controlplane.domain.fleet import OFF, GpuAccount, Inventory, Node
from controlplane.domain.ids import NodeId, PoolName


def account(inventory: Inventory) -> GpuAccount:
    """The account of an inventory.

    A GPU counts where it serves: for the pool of the instance that uses it, lent or not; the rest
    of a node counts for the node's own pool, or for the buffer. An instance on a broken GPU leaves
    it to `unavailable`. More GPUs in use than a node has, one GPU in two hands, or use on a node
    nobody knows, is `unaccounted`: somebody counts twice.
    """
    used, doubled = _used(inventory), _doubled(inventory)
    pools: Counter[PoolName] = Counter({each.pool: 0 for each in inventory.nodes if each.pool is not None})
    buffer = unavailable = unaccounted = 0
    for node in inventory.nodes:
        broken = min(max(node.unavailable_gpus, 0), node.gpu_count)
        taken, excess = _fitting(used.pop(node.node_id, Counter()), node, node.gpu_count - broken)
        rest = node.gpu_count - broken - taken.total()
        pools.update(taken)
        if node.pool is None:
            buffer += rest
        else:
            pools[node.pool] += rest
        unavailable += broken
        unaccounted += max(excess, doubled.get(node.node_id, 0))
    unaccounted += sum(each.total() for each in used.values())
    fleet = sum(node.gpu_count for node in inventory.nodes)
    return GpuAccount(fleet, tuple(sorted(pools.items())), buffer, unavailable, unaccounted)


def _used(inventory: Inventory) -> dict[NodeId, Counter[PoolName]]:
    used: dict[NodeId, Counter[PoolName]] = {}
    for each in inventory.instances:
        if each.phase not in OFF:
            used.setdefault(each.node, Counter())[each.pool] += each.tp
    return used


def _doubled(inventory: Inventory) -> Counter[NodeId]:
    """By node: how many hands too many its GPUs are in, as far as it is known which GPUs they are."""
    hands = Counter(
        (each.node, index) for each in inventory.instances if each.phase not in OFF for index in each.gpus
    )
    doubled: Counter[NodeId] = Counter()
    for (node, _), count in hands.items():
        doubled[node] += count - 1
    return doubled


def _fitting(wanted: Counter[PoolName], node: Node, room: int) -> tuple[Counter[PoolName], int]:
    """What fits the node's working GPUs, the node's own pool last; and what is beyond the node."""
    taken: Counter[PoolName] = Counter()
    for pool, gpus in sorted(wanted.items(), key=lambda item: (item[0] == node.pool, item[0])):
        taken[pool] = min(gpus, room - taken.total())
    return taken, max(0, wanted.total() - node.gpu_count)
