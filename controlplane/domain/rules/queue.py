"""What waits at the gateway: demand that no engine sees, and the one signal a pool of 0 has."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.policy import Routing
from controlplane.domain.readings import Known, PoolSignal
from controlplane.domain.rules.base import CapacityView, Rule, seen

ID = "queue"


class Code(StrEnum):
    """Why."""

    WAKE = "queue_wakes"
    WAITING = "queue_waiting"
    EMPTY = "queue_empty"
    MISSING = "queue_missing"
    NO_DOOR = "queue_no_door"


WORDS: Mapping[str, str] = {
    Code.WAKE: "{gateway_queue} wait at the gateway and nothing runs",
    Code.WAITING: "{gateway_queue} wait at the gateway",
    Code.EMPTY: "nobody waits at the gateway",
    Code.MISSING: "the gateway's queue is unknown: {gateway_queue}",
    Code.NO_DOOR: "another router keeps the queue",
}


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Wake an empty pool; while somebody waits, or while that is unknown, nothing shrinks."""
    queue = view.pool.reading(PoolSignal.GATEWAY_QUEUE)
    inputs = (seen(PoolSignal.GATEWAY_QUEUE, queue, view.pool.now),)
    if not isinstance(queue, Known):
        external = view.pool.policy.routing is Routing.EXTERNAL
        return Step(ID, *((Code.NO_DOOR, Vote.ABSTAIN) if external else (Code.MISSING, Vote.BLOCK)), inputs)
    if queue.value <= 0.0:
        return Step(ID, Code.EMPTY, Vote.SHRINK_OK, inputs)
    if view.before == 0:
        return Step(ID, Code.WAKE, Vote.GROW, inputs, (Proposal(Verb.AT_LEAST, 1.0),))
    return Step(ID, Code.WAITING, Vote.BLOCK, inputs)


RULE = Rule(ID, Code, WORDS, propose)
