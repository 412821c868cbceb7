"""Who holds which GPU, and which weights lie in host memory: read off the records, so that no second
account could differ from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.twin.live.lifecycle import Phase, Record


def holders(records: Iterable[Record], node: str) -> dict[int, Record]:
    """The awake instance on each held GPU of a node."""
    return {gpu: each for each in records if each.node == node and each.holds for gpu in each.gpus}


def sleepers(records: Iterable[Record], node: str) -> dict[int, int]:
    """How many instances sleep on each GPU of a node; GPUs without any are left out."""
    found: dict[int, int] = {}
    for each in records:
        if each.node == node and each.phase is Phase.ASLEEP:
            for gpu in each.gpus:
                found[gpu] = found.get(gpu, 0) + 1
    return found


def held(records: Iterable[Record], wants: Record) -> str | None:
    """In words: which GPU that `wants` needs another awake instance has; None where all are free."""
    on_node = holders((each for each in records if each is not wants), wants.node)
    for gpu in wants.gpus:
        if gpu in on_node:
            other = on_node[gpu]
            return f"GPU {gpu} of {wants.node} is held by {other.instance_id} ({other.phase})"
    return None


def no_room(
    records: Iterable[Record], wants: Record, weights_gib: Mapping[str, float], budget_gib: float
) -> str | None:
    """In words: why the host memory of its node does not take the weights of `wants`; None where it does."""
    taken = sum(
        weights_gib[each.pool]
        for each in records
        if each is not wants and each.node == wants.node and each.in_host_memory
    )
    need = weights_gib[wants.pool]
    if taken + need <= budget_gib:
        return None
    return (
        f"{wants.node} has {budget_gib:g} GiB of host memory for sleepers, {taken:g} are taken, "
        f"{wants.slot} needs {need:g}"
    )
