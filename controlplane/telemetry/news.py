"""Log lines, only where something changed: a steady fleet is silent, however long it lasts."""

from __future__ import annotations

import logging

from controlplane.domain.ids import CycleKind, DecisionId, PoolName
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.words import sentence
from controlplane.loop.cycle import Report

log = logging.getLogger("trimtab")

Said = tuple[Outcome, str]
CALM: Said = (Outcome.NOTHING_TO_DO, "")
TROUBLE = frozenset({Outcome.HELD, Outcome.FAILED})


class News:
    """Says a pool's decision when it differs from the last one of its kind, once."""

    def __init__(self) -> None:
        self._said: dict[tuple[CycleKind, PoolName], Said] = {}
        self._failure: dict[CycleKind, str] = {}

    def tell(self, report: Report) -> None:
        """Say what is new in a cycle."""
        self._say_failure(report)
        if report.plan is None or report.cycle is None:
            return
        for pool, decision in report.plan.decisions.items():
            self._say(report.kind, DecisionId(report.cycle, pool), decision)

    def _say(self, kind: CycleKind, id_: DecisionId, decision: Decision) -> None:
        said, before = _gist(decision), self._said.get((kind, id_.pool))
        self._said[kind, id_.pool] = said
        settled = said == CALM and before is not None and before[0] not in TROUBLE
        if said != before and not settled:
            level = logging.WARNING if decision.outcome in TROUBLE else logging.INFO
            log.log(level, "%s [%s]", sentence(decision), id_)

    def _say_failure(self, report: Report) -> None:
        if report.failure and self._failure.get(report.kind) != report.failure:
            told = "no %s cycle: %s; nothing is touched" if report.plan is None else "%s cycle: %s"
            log.error(told, report.kind, report.failure)
        if not report.failure and self._failure.get(report.kind):
            log.info("%s cycles run again", report.kind)
        self._failure[report.kind] = report.failure


def _gist(decision: Decision) -> Said:
    """What makes a decision another one: a change by its words, trouble by its reason. Why nothing is
    done differs with every breath of the load, and is in the record for whoever asks."""
    if decision.outcome is Outcome.CHANGE:
        return decision.outcome, sentence(decision)
    return (decision.outcome, decision.explanation.code) if decision.outcome in TROUBLE else CALM
