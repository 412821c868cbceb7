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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A series that alerts of the same group read, and boards may."""

    name: str
    expr: str

    def rule(self) -> Mapping[str, Any]:
        """The rule as Prometheus reads it."""
        return {"record": self.name, "expr": self.expr}


def group(name: str, rules: Sequence[Alert | Recorded]) -> Mapping[str, Any]:
    """A rule file's content with one group: its rules run one after another, in this order."""
    return {"groups": [{"name": name, "rules": [rule.rule() for rule in rules]}]}


def labelled(expr: str, **labels: str) -> str:
    """The expression with constant labels on every sample."""
    for name, value in labels.items():
        expr = f'label_replace({expr}, "{name}", "{value}", "", "")'
    return expr
