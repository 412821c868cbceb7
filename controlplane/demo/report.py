"""The report of a demonstration: results, the record and the twin's word, as plain JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from controlplane.adapters.sql.pagelist import Page
from controlplane.adapters.sql.reader import Lent
from controlplane.demo import moved
from controlplane.demo.act import Mark
from controlplane.demo.fleet import BORROWED, DEADLINE_S, STARRED
from controlplane.demo.record import Told
from controlplane.demo.timeline import FAILURES, Deed
from controlplane.domain.conservation import account
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.plan import Action, ActionKind
from controlplane.domain.words import slot as slot_of
from controlplane.traffic.results import Result
from controlplane.traffic.summary import OrderedFault, Phase, by_phase, counts, latency

FOUND_SHARE = 0.9
"""A throttled card counts as weighted down from the first weight at or below this share of the weight
that its healthy fellows have."""

TAIL_SHARE = 0.15
"""The last part of a time, in which its outcome is read."""

KINDS = ("utilisation", "busyness")


@dataclass(frozen=True, slots=True)
class Material:
    """All that a report is made of. `truth`: the twin's word; `pushed`: levels that gateways took; `online`:
    pools whose callers wait; `late_s`: the starred pool's target of the first token, seconds."""

    results: Sequence[Result]
    cycles: Sequence[Told]
    pushed: int
    marks: Sequence[Mark]
    slot: str
    truth: Mapping[str, Any]
    summaries: Sequence[Mapping[str, Any]]
    model: str
    loans: Sequence[Lent] = ()
    pages: Sequence[Page] = ()
    online: Sequence[str] = ()
    late_s: float = 1.0


def figures(material: Material) -> dict[str, Any]:
    """The part of the report that is about the fleet."""
    faults = _faults(material)
    broken = sum(material.truth.get("broken_requests", {}).values()) if material.truth else None
    phases = [_phase(mark) for mark in material.marks if mark.to_at is not None]
    crowd = _mark(material.marks, Deed.SURGE)
    return {
        "requests": counts(material.results, faults, broken),
        "latency": {"all": latency(material.results), "phases": by_phase(material.results, phases, faults)},
        "decisions": _decisions(material.cycles),
        "pushes": material.pushed,
        "loans": moved.loans(material.loans),
        "drains": moved.drains(material.truth, material.online),
        "pages": moved.pages(material.pages),
        "imbalance": _imbalance(material),
        "gpus_unaccounted": _unaccounted(material.cycles),
        "lag_p99_s": worst_lag(material),
        "lag": {
            "generator_p99_s": [each.get("lag_p99_s") for each in material.summaries],
            "twin_p99_s": material.truth.get("lag_p99_s"),
        },
        "story": {
            "throttle": _throttle(material),
            "surge": moved.surge(material.results, crowd, BORROWED, material.late_s),
            "pages": moved.paged(material.pages, crowd),
            "prometheus": _failures(material),
        },
    }


def worst_lag(material: Material) -> float | None:
    """The worse P99 lateness of generator (sending, and its own loop) and twin.

    None where either did not say: the known one alone could hide that the other was starved.
    """
    twin = material.truth.get("lag_p99_s")
    found = [each.get(key) for each in material.summaries for key in ("lag_p99_s", "loop_lag_p99_s")]
    generator = [value for value in found if value is not None]
    return max(twin, *generator) if twin is not None and generator else None


def _phase(mark: Mark) -> Phase:
    assert mark.to_at is not None  # noqa: S101 - only phases that ended
    return Phase(mark.phase.name, mark.from_at, mark.to_at)


def _faults(material: Material) -> list[OrderedFault]:
    return [
        OrderedFault(each["slot"], each["since"], each["cleared_at"] or each["until"], material.model)
        for each in material.truth.get("faults", ())
    ]


def _decisions(cycles: Iterable[Told]) -> dict[str, int]:
    """How many decisions of each kind and outcome."""
    found = Counter(
        f"{told.cycle.kind}_{decision.outcome}"
        for told in cycles
        for decision in told.plan.decisions.values()
    )
    return dict(sorted(found.items()))


def _unaccounted(cycles: Iterable[Told]) -> int | None:
    """The worst account of any inventory that was acted on; None where none was seen."""
    inventories = {
        told.inventory.taken_at: told.inventory for told in cycles if isinstance(told.inventory, Inventory)
    }
    return max((abs(account(each).unaccounted) for each in inventories.values()), default=None)


def _imbalance(material: Material) -> dict[str, dict[str, float | None]]:
    """Of the starred pool, while its card is throttled and Prometheus whole: the worst, and the median of the
    last part. A window of a minute shows a slow card late, so the worst is not at the beginning."""
    mark = _mark(material.marks, Deed.THROTTLE)
    if mark is None:
        unknown: dict[str, float | None] = {"healthy": None, "before": None, "after": None}
        return dict.fromkeys(KINDS, unknown)
    from_at, to_at = mark.from_at, _blinded_at(material.marks)
    tail_at = to_at - TAIL_SHARE * (to_at - from_at)
    return {
        kind: {
            "healthy": _last(_readings(material.cycles, kind, 0.0, from_at)),
            "before": max(_readings(material.cycles, kind, from_at, to_at), default=None),
            "after": _median(_readings(material.cycles, kind, tail_at, to_at)),
        }
        for kind in KINDS
    }


def _blinded_at(marks: Iterable[Mark]) -> float:
    """When Prometheus was first made to fail; where it never was, when the last phase ended."""
    ended = [mark for mark in marks if mark.to_at is not None]
    failed = [mark.from_at for mark in ended if mark.phase.deed in FAILURES]
    return min(failed, default=max(mark.to_at or mark.from_at for mark in ended))


def _readings(cycles: Iterable[Told], kind: str, from_at: float, to_at: float) -> list[float]:
    return [
        each.value
        for told in cycles
        if from_at <= told.started_at < to_at and PoolName(STARRED) in told.plan.decisions
        for step in told.plan.decisions[PoolName(STARRED)].explanation.steps
        for each in step.inputs
        if each.name == f"imbalance_{kind}" and each.value is not None
    ]


def _mark(marks: Iterable[Mark], deed: Deed) -> Mark | None:
    return next((mark for mark in marks if mark.phase.deed is deed and mark.to_at is not None), None)


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _throttle(material: Material) -> dict[str, Any]:
    """Who was throttled, and what became of its weight, as it was set by the controller."""
    mark = _mark(material.marks, Deed.THROTTLE)
    if mark is None:
        return {"instance": material.slot or None}
    pushes = [
        (told.started_at, action)
        for told in material.cycles
        for action in _actions(told, ActionKind.SET_WEIGHT)
        if slot_of(action.instance or "") == material.slot
    ]
    before = [action.level for at, action in pushes if at < mark.from_at]
    during = [(at, action) for at, action in pushes if mark.from_at <= at < (mark.to_at or at)]
    first = during[0][1].seen if during else None
    healthy = before[-1] if before else first
    found = next((at for at, each in during if healthy and each.level <= FOUND_SHARE * healthy), None)
    return {
        "instance": material.slot,
        "weight_before": healthy,
        "weight_after": during[-1][1].level if during else healthy,
        "weighted_down_after_s": None if found is None else round(found - mark.from_at, 1),
    }


def _failures(material: Material) -> dict[str, Any]:
    """For each way of failing: what the controller did while it was in force. Both should be 0."""
    return {
        mark.phase.deed.value.removeprefix("prometheus_"): _while_blind(material.cycles, mark)
        for mark in material.marks
        if mark.phase.deed in FAILURES and mark.to_at is not None
    }


def _while_blind(cycles: Iterable[Told], mark: Mark) -> dict[str, Any]:
    """Cycles that began after the failure showed, and asked their last question before it was mended:
    one that still waits when a hanging source wakes up is answered after all."""
    since, until = mark.effective_at, (mark.to_at or 0.0) - DEADLINE_S
    chosen = [told for told in cycles if since is not None and since <= told.started_at < until]
    return {
        "showed_after_s": None if since is None else round(since - mark.from_at, 1),
        "cycles": len(chosen),
        "shrinks": sum(shrinks(told) for told in chosen),
        "weight_changes": sum(len(_actions(told, ActionKind.SET_WEIGHT)) for told in chosen),
    }


def shrinks(told: Told) -> int:
    """How many pools a capacity cycle wanted smaller."""
    if told.cycle.kind is not CycleKind.CAPACITY:
        return 0
    explained = (each.explanation for each in told.plan.decisions.values())
    return sum(
        each.before is not None and each.after is not None and each.after < each.before for each in explained
    )


def _actions(told: Told, kind: ActionKind) -> list[Action]:
    return [
        action
        for decision in told.plan.decisions.values()
        for action in decision.actions
        if action.kind is kind
    ]
