"""What every alert has: a name, an expression, how long it must hold, and a page that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RUNBOOKS = "alerts/runbooks"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule. `severity`: `page` or `warning`; `summary`: one sentence; `held`: PromQL's `for`."""

    name: str
    expr: str
    summary: str
    severity: str = "page"
    held: str = "0s"

    def rule(self) -> Mapping[str, Any]:
        """The rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.held,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": f"{RUNBOOKS}/{self.name}.md"},
        }


def group(name: str, alerts: Sequence[Alert]) -> Mapping[str, Any]:
    """A rule file's content with one group."""
    return {"groups": [{"name": name, "rules": [alert.rule() for alert in alerts]}]}
