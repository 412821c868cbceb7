"""Where the GPUs are, what is lent, and what was asked for in vain: rows of the controller's own page.

What is not known has no row: without an inventory no GPU is counted, and a pool whose want is not known,
or that may not move by itself, is not said to lack nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from controlplane.domain.conservation import account
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import PoolName
from controlplane.domain.loans import Entry, Loan
from controlplane.domain.moves.step import ID as PLACEMENT
from controlplane.domain.observation import Observation, Reach
from controlplane.domain.plan import Decision, Outcome, Plan
from controlplane.domain.policy import Mode
from controlplane.loop.cycle import Report
from controlplane.telemetry import catalog

Row = tuple[Sequence[str], float]


def rows(newest: Report | None, capacity: Report | None, cluster: str) -> dict[str, list[Row]]:
    """`newest`: the last cycle that observed anything, of either kind; `capacity`: the last of that kind."""
    return {
        **_gpus(newest.observation if newest else None, cluster),
        **_loans(newest, cluster),
        catalog.SHORT.name: list(_short(capacity, cluster)),
    }


def _gpus(seen: Observation | None, cluster: str) -> dict[str, list[Row]]:
    """Of an orchestrator that knows of no node, no GPU is known either."""
    if seen is None or not isinstance(seen.inventory, Inventory) or not seen.inventory.nodes:
        return {}
    found = account(seen.inventory)
    counted: list[Row] = [((cluster, pool, "pool"), float(gpus)) for pool, gpus in found.pools]
    counted.append(((cluster, "", "buffer"), float(found.buffer)))
    counted.append(((cluster, "", "unavailable"), float(found.unavailable)))
    return {
        catalog.GPUS.name: counted,
        catalog.UNACCOUNTED.name: [((cluster,), float(found.unaccounted))],
    }


def _loans(report: Report | None, cluster: str) -> dict[str, list[Row]]:
    """The ledger as this cycle left it. A pool with a decision and without a loan has none: that is known."""
    if report is None or report.observation is None or report.plan is None:
        return {}
    standing = list(_standing(report.observation.loans, report.plan))
    pools = sorted({*report.plan.decisions, *(each.borrower for each in standing)})
    count = Counter(each.borrower for each in standing)
    gpus: Counter[PoolName] = Counter()
    for each in standing:
        gpus[each.borrower] += each.gpus
    return {
        catalog.LOANS.name: [((cluster, pool), float(count[pool])) for pool in pools],
        catalog.LOANED.name: [((cluster, pool), float(gpus[pool])) for pool in pools],
    }


def _standing(before: Iterable[Loan], plan: Plan) -> Iterator[Loan | Entry]:
    closed = {each.instance for each in plan.loans if not each.opens}
    yield from (each for each in before if each.instance not in closed)
    yield from (each for each in plan.loans if each.opens)


def _short(report: Report | None, cluster: str) -> Iterator[Row]:
    if report is None or report.plan is None or not _could_place(report.observation):
        return
    for pool, decision in report.plan.decisions.items():
        if _asked(decision):
            yield (cluster, pool), _missing(decision)


def _could_place(seen: Observation | None) -> bool:
    return seen is not None and seen.reach is Reach.INSTANCES and isinstance(seen.inventory, Inventory)


def _asked(decision: Decision) -> bool:
    """Places are looked for where a pool moves by itself and its want is known; it may want nothing."""
    told = decision.explanation
    known = told.before is not None and told.after is not None
    return known and decision.mode is Mode.AUTO and decision.outcome is not Outcome.FAILED


def _missing(decision: Decision) -> float:
    steps = (each for each in decision.explanation.steps if each.rule == PLACEMENT)
    return float(sum(each.value or 0.0 for step in steps for each in step.inputs if each.name == "missing"))
