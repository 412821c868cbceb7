"""How the source itself is doing, for the record and for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from controlplane.adapters.engines.template import Helper, Level, duration, series_name
from controlplane.adapters.prometheus.brought import Brought
from controlplane.adapters.prometheus.client import Answer, Failure, Result
from controlplane.adapters.prometheus.reader import Reader
from controlplane.domain.observation import SourceHealth
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause

SKEW_NOTED_S = 30.0
"""Clocks further apart than this are worth a remark; ages are by the server's clock either way."""


_REJECTED = series_name(Helper.GPU_REJECTED, Level.INSTANCE)
_MOST_REJECTED = 1e6  # of one instance; more is no count, and neither is NaN
_LONGEST_WINDOW_S = 366 * 86_400.0


def health(results: Mapping[str, Result], reader: Reader) -> SourceHealth:
    """One cycle's account of the source."""
    answers = [result for result in results.values() if isinstance(result, Answer)]
    skew_s = _skew(answers, reader.now)
    notes = [*(note for answer in answers for note in answer.vector.notes), *reader.remarks]
    notes += _windows(reader.brought, reader.policies) + _empty(reader.brought) + _skewed(skew_s)
    return SourceHealth(
        queries=len(results),
        failures=_failures(results, reader.brought),
        warnings=_once(warning for answer in answers for warning in answer.vector.warnings),
        notes=_once(notes),
        rejected_samples=reader.rejected + _rejected_by_rules(reader.brought),
        skew_s=skew_s,
        interval_s=reader.interval_s,
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _failures(results: Mapping[str, Result], brought: Sequence[Brought]) -> tuple[tuple[str, str], ...]:
    failed = [(name, result.detail) for name, result in results.items() if isinstance(result, Failure)]
    if brought and all(each.failed is Cause.EMPTY for each in brought):
        failed += [(each.ask.name, "answered with no series at all for anybody") for each in brought]
    return tuple(failed)


def _empty(brought: Sequence[Brought]) -> list[str]:
    return [f"query {each.ask.name}: no series at all" for each in brought if each.failed is Cause.EMPTY]


def _skew(answers: Sequence[Answer], now: float) -> float | None:
    """The server's clock minus ours, seconds; good to about half a second, as `Date` is."""
    differences = [
        answer.server_date + 0.5 - (now + answer.wait_s)
        for answer in answers
        if answer.server_date is not None
    ]
    return statistics.median(differences) if differences else None


def _skewed(skew_s: float | None) -> list[str]:
    if skew_s is None or abs(skew_s) <= SKEW_NOTED_S:
        return []
    return [f"the source's clock is {skew_s:+.0f} s from ours; ages are by its clock"]


def _windows(brought: Sequence[Brought], policies: Policies) -> list[str]:
    """Policies that ask for another window than the one the rules were rendered for."""
    found = {each.helper(Helper.WINDOW, Level.RULES, "") for each in brought} - {None}
    return [
        f"pool {name}: its policy asks for a window of {duration(pool.evidence.window_s)},"
        f" the rules were rendered for {duration(window_s)}"
        for window_s in found
        if window_s is not None and 0.0 < window_s <= _LONGEST_WINDOW_S
        for name, pool in policies.pools.items()
        if abs(pool.evidence.window_s - window_s) > 1e-3
    ]


def _rejected_by_rules(brought: Sequence[Brought]) -> int:
    """Raw GPU samples that the templates dropped before averaging (B-007). What is no count is none."""
    rows = (row for each in brought if (row := each.table.rows.get(_REJECTED)) is not None)
    said = (value for row in rows for values in row.values() for value in values)
    return int(sum(value for value in said if 0.0 <= value <= _MOST_REJECTED))
