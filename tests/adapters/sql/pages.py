"""Alerts as somebody is told of them."""

from __future__ import annotations

from dataclasses import replace

from controlplane.ports import Notified
from tests.builders import NOW

LATE = Notified(
    cluster="demo",
    fingerprint="1f0c2d3e4a5b6c7d",
    starts_at=NOW,
    ends_at=None,
    alertname="P95OverTarget",
    severity="page",
    pool="chat-8b",
    labels={"alertname": "P95OverTarget", "severity": "page", "cluster": "demo", "pool": "chat-8b"},
    summary="The ttft_p95 of pool chat-8b of demo is 2.1 s (door), its target is 1 s.",
    runbook="alerts/runbooks/P95OverTarget.md",
)


def told(**changes: object) -> Notified:
    """An alert that P95 is late, fired at NOW."""
    return replace(LATE, **changes)  # type: ignore[arg-type]


def ended(after_s: float = 60.0, **changes: object) -> Notified:
    """The same, so long after it fired over."""
    alert = told(**changes)
    return replace(alert, ends_at=alert.starts_at + after_s)
