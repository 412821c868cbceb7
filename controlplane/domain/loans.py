"""Loans: capacity that one pool has from another, or from the buffer, as a double-entry ledger.

What is lent follows from what stands where, so the ledger is a level like any other: an instance
that is awake (or ordered to be) on another owner's GPUs has one open loan, and a loan closes when
its GPUs are seen to be free again. Opened before the order leaves, closed after it is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controlplane.domain.fleet import OFF, Inventory, Node
from controlplane.domain.ids import InstanceId, NodeId, PoolName
from controlplane.domain.policy import Policies, PoolKind

BUFFER = PoolName("buffer")
"""The account of the nodes that belong to nobody."""


class Code(StrEnum):
    """Why a loan is opened or closed."""

    SURGE = "loan_surge"  # a move brings the instance up
    FOUND = "loan_found"  # it stands there already: the ledger follows what is
    RETURNED = "loan_returned"


WORDS: Mapping[str, str] = {
    Code.SURGE: "a move brings it up",
    Code.FOUND: "found there already",
    Code.RETURNED: "seen to be free again",
}
"""Each reason in words."""


@dataclass(frozen=True, slots=True)
class Loan:
    """An open loan. `opened_at` epoch seconds; `loan_id` is the record's own name of it."""

    loan_id: str
    lender: PoolName
    borrower: PoolName
    instance: InstanceId
    node: NodeId
    gpus: int
    opened_at: float
    code: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of the ledger: `gpus` of `node` pass from lender to borrower (`opens`), or back."""

    opens: bool
    lender: PoolName
    borrower: PoolName
    instance: InstanceId
    node: NodeId
    gpus: int
    code: str


@dataclass(frozen=True, slots=True)
class Coming:
    """An instance that is ordered to come up, whether it stands in the inventory or not."""

    instance: InstanceId
    pool: PoolName
    node: NodeId
    gpus: int


def entries(
    inventory: Inventory, coming: Iterable[Coming], open_: Sequence[Loan], policies: Policies
) -> tuple[Entry, ...]:
    """What the ledger lacks, closings first, in id order. Nothing while it already says what is."""
    wanted = _wanted(inventory, coming, policies)
    closed = [each for each in open_ if not _stands(each, wanted)]
    kept = {each.instance for each in open_ if _stands(each, wanted)}
    return (
        *(_closing(each) for each in sorted(closed, key=lambda each: each.instance)),
        *(wanted[name] for name in sorted(wanted) if name not in kept),
    )


def balances(nodes: Iterable[Node], open_: Iterable[Loan | Entry]) -> Mapping[PoolName, int]:
    """GPUs by account: what each owns, less what it lent, plus what it borrowed. Their sum is the fleet."""
    held: Counter[PoolName] = Counter()
    for node in nodes:
        held[node.pool or BUFFER] += node.gpu_count
    for each in open_:
        held[each.lender] -= each.gpus
        held[each.borrower] += each.gpus
    return dict(sorted(held.items()))


def _wanted(inventory: Inventory, coming: Iterable[Coming], policies: Policies) -> dict[InstanceId, Entry]:
    owners = {each.node_id: each.pool for each in inventory.nodes}
    standing = {
        each.instance_id: (Coming(each.instance_id, each.pool, each.node, each.tp), Code.FOUND)
        for each in inventory.instances
        if each.phase not in OFF
    }
    ordered = {each.instance: (each, Code.SURGE) for each in coming}
    return {
        name: _opening(each, owners[each.node], code)
        for name, (each, code) in (standing | ordered).items()
        if each.node in owners and _is_loan(each.pool, owners[each.node], policies)
    }


def _is_loan(pool: PoolName, owner: PoolName | None, policies: Policies) -> bool:
    """Offline work on the buffer's own GPUs is no loan: it is how the buffer works while it waits, and
    it ends without notice."""
    if pool == owner:
        return False
    policy = policies.pools.get(pool)
    return policy is not None and (owner is not None or policy.kind is PoolKind.ONLINE)


def _opening(each: Coming, owner: PoolName | None, code: Code) -> Entry:
    return Entry(True, owner or BUFFER, each.pool, each.instance, each.node, each.gpus, code)


def _stands(loan: Loan, wanted: Mapping[InstanceId, Entry]) -> bool:
    entry = wanted.get(loan.instance)
    return entry is not None and (
        entry.lender,
        entry.borrower,
        entry.node,
        entry.gpus,
    ) == (loan.lender, loan.borrower, loan.node, loan.gpus)


def _closing(loan: Loan) -> Entry:
    return Entry(False, loan.lender, loan.borrower, loan.instance, loan.node, loan.gpus, Code.RETURNED)
