"""Notifications as Alertmanager 0.25 sends them, and a caller that sends them."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

TOKEN = "s3cret-of-the-house"
NEVER = "0001-01-01T00:00:00Z"


def alert(status: str = "firing", **changes: object) -> dict[str, Any]:
    """One alert of a notification."""
    labels = {"alertname": "P95OverTarget", "severity": "page", "cluster": "demo", "pool": "chat-8b"}
    base: dict[str, Any] = {
        "status": status,
        "labels": labels,
        "annotations": {"summary": "It is late.", "runbook": "alerts/runbooks/P95OverTarget.md"},
        "startsAt": "2027-01-15T08:00:00.123456789Z",
        "endsAt": NEVER if status == "firing" else "2027-01-15T08:01:00Z",
        "generatorURL": "http://prometheus:9090/graph",
        "fingerprint": "1f0c2d3e4a5b6c7d",
    }
    return {**base, **changes}


def notification(*alerts: dict[str, Any], **changes: object) -> bytes:
    """The body of a webhook's call."""
    content: dict[str, Any] = {
        "version": "4",
        "groupKey": '{}:{alertname="P95OverTarget"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "trimtab",
        "groupLabels": {"alertname": "P95OverTarget"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts) or [alert()],
    }
    return json.dumps({**content, **changes}).encode()


def post(port: int, body: bytes, token: str | None = TOKEN, **headers: str) -> tuple[int, str]:
    """Status and text of `POST /alerts`."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10.0)
    shown = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        connection.request("POST", "/alerts", body, {**shown, **headers})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()
