"""What the report says of capacity that moved: loans, drains, the surge's answer, and pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.adapters.sql.pagelist import Page
from controlplane.adapters.sql.reader import Lent
from controlplane.demo.act import Mark
from controlplane.domain.words import slot as slot_of
from controlplane.ports import PageStatus
from controlplane.traffic.results import Outcome, Result

DRAINING = "draining"


def loans(ledger: Iterable[Lent]) -> dict[str, int]:
    """How many were opened, how many of them are closed, and how many stand open."""
    closed = [each.closed_at is not None for each in ledger]
    return {"opened": len(closed), "closed": sum(closed), "open": len(closed) - sum(closed)}


def drains(truth: Mapping[str, Any], online: Iterable[str]) -> dict[str, int | None]:
    """Instances of online pools that left, and streams that were cut for it, by the twin's own word.

    `offline_given_up`: attempts of offline work that were broken off for somebody else; their clients
    made them again. None where the twin said nothing.
    """
    if not truth:
        return {"n": None, "streams_cut": None, "offline_given_up": None}
    pools = tuple(online)
    left = [slot_of(each["instance_id"]) for each in truth.get("lives", ()) if each["phase"] == DRAINING]
    evicted: Mapping[str, int] = truth.get("evicted_requests", {})
    cut = sum(count for slot, count in evicted.items() if _of(slot, pools))
    return {
        "n": sum(_of(slot, pools) for slot in left),
        "streams_cut": cut,
        "offline_given_up": sum(evicted.values()) - cut,
    }


def _of(slot: str, pools: Sequence[str]) -> bool:
    return slot.rpartition("-")[0] in pools


def pages(told: Sequence[Page]) -> dict[str, int]:
    """How many fired, and how many of them were resolved."""
    return {"fired": len(told), "resolved": sum(each.status is PageStatus.RESOLVED for each in told)}


def paged(told: Sequence[Page], mark: Mark | None) -> list[dict[str, Any]]:
    """Each page: what it was about, when it came and went (seconds from the surge), and its decision."""
    start = mark.from_at if mark else None
    return [
        {
            "alert": each.alertname,
            "pool": each.pool,
            "summary": each.summary,
            "began_after_s": _since(each.id.starts_at, start),
            "ended_after_s": _since(each.resolved_at, start),
            "notifications": each.notifications,
            "decision": str(each.decision) if each.decision else None,
        }
        for each in told
    ]


def surge(results: Iterable[Result], mark: Mark | None, borrowed: str, target_s: float) -> dict[str, Any]:
    """From the first caller who waited beyond the target until borrowed capacity gave a first answer.

    `borrowed`: what the names of lent instances begin with. Instants in seconds from the surge's start;
    a caller is late once the target has passed, whether his answer has begun by then or not.
    """
    if mark is None:
        return {}
    served = [each for each in results if each.sent_at >= mark.from_at and each.ttft_s is not None]
    late = [each.sent_at + target_s for each in served if (each.ttft_s or 0.0) > target_s]
    answered = [
        each.sent_at + (each.ttft_s or 0.0)
        for each in served
        if each.outcome is Outcome.OK and (each.instance or "").startswith(borrowed)
    ]
    first_late, first_answer = min(late, default=None), min(answered, default=None)
    gap = None if first_late is None or first_answer is None else round(first_answer - first_late, 2)
    return {
        "first_late_s": _since(first_late, mark.from_at),
        "first_borrowed_answer_s": _since(first_answer, mark.from_at),
        "late_to_borrowed_s": gap,
    }


def _since(at: float | None, start: float | None) -> float | None:
    return None if at is None or start is None else round(at - start, 2)
