"""Log lines, only where something changed: a steady fleet is silent, however long it lasts."""

from __future__ import annotations

import logging

from controlplane.domain.ids import CycleKind, DecisionId, PoolName
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.words import sentence
from controlplane.loop.cycle import Report

log = logging.getLogger("trimtab")

Said = tuple[str, str, str]


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
        words = sentence(decision)
        changing = decision.outcome is Outcome.CHANGE
        said = (decision.outcome, decision.explanation.code, words if changing else "")
        if self._said.get((kind, id_.pool)) != said:
            self._said[kind, id_.pool] = said
            level = logging.WARNING if decision.outcome in {Outcome.HELD, Outcome.FAILED} else logging.INFO
            log.log(level, "%s [%s]", words, id_)

    def _say_failure(self, report: Report) -> None:
        if report.failure and self._failure.get(report.kind) != report.failure:
            told = "no %s cycle: %s; nothing is touched" if report.plan is None else "%s cycle: %s"
            log.error(told, report.kind, report.failure)
        if not report.failure and self._failure.get(report.kind):
            log.info("%s cycles run again", report.kind)
        self._failure[report.kind] = report.failure
