"""What Alertmanager's webhook sends (version 4), taken apart: nothing in it is trusted to be well formed.

Only what a page needs is kept, each text bounded and made printable, so that no caller can fill the
record, and no label can play tricks in a terminal.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.domain.ids import NAME
from controlplane.ports import Notified, PageStatus

VERSION = "4"
LABELS_MAX = 64
LENGTH_MAX = 1024
"""Letters of one label, value or text; what is longer is cut."""

_FINGERPRINT = re.compile(r"[0-9a-f]{1,64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_YEARS = range(1970, 2200)
_SHOWN = 60


class Malformed(Exception):
    """What is wrong with a notification: field, value and what is allowed."""


def read_notification(body: bytes, cluster: str, at: float) -> Sequence[Notified]:
    """The alerts in a webhook's body, in its order.

    `cluster`: whose an alert is that names none; `at` (epoch seconds): when one has ended that has
    ended and does not say when. Raises Malformed.
    """
    content = _object(_parsed(body), "the body")
    if content.get("version") != VERSION:
        raise _wrong("version", content.get("version"), f'"{VERSION}"')
    alerts = content.get("alerts")
    if not isinstance(alerts, list):
        raise _wrong("alerts", alerts, "a list")
    return [
        _alert(_object(each, f"alerts[{n}]"), f"alerts[{n}]", cluster, at) for n, each in enumerate(alerts)
    ]


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        kind = "nested too deeply" if isinstance(error, RecursionError) else "not JSON in UTF-8"
        raise Malformed(f"the body: {kind}") from None


def _alert(alert: Mapping[str, Any], where: str, cluster: str, at: float) -> Notified:
    labels = _texts(alert.get("labels"), f"{where}.labels")
    said = _texts(alert.get("annotations", {}), f"{where}.annotations")
    return Notified(
        cluster=_name(labels.get("cluster", "")) or cluster,
        fingerprint=_fingerprint(alert.get("fingerprint"), f"{where}.fingerprint"),
        starts_at=_instant(alert.get("startsAt"), f"{where}.startsAt"),
        ends_at=_end(alert, where, at),
        alertname=labels.get("alertname", ""),
        severity=labels.get("severity", ""),
        pool=_name(labels.get("pool", "")),
        labels=dict(sorted(labels.items())[:LABELS_MAX]),
        summary=said.get("summary", ""),
        runbook=said.get("runbook", ""),
    )


def _end(alert: Mapping[str, Any], where: str, at: float) -> float | None:
    status = alert.get("status")
    if status == PageStatus.FIRING:
        return None  # endsAt is then the year 1, or when the alert would be given up
    if status != PageStatus.RESOLVED:
        raise _wrong(f"{where}.status", status, " or ".join(PageStatus))
    told = alert.get("endsAt")
    return at if isinstance(told, str) and told.startswith("0001-") else _instant(told, f"{where}.endsAt")


def _instant(value: object, where: str) -> float:
    """RFC 3339 as epoch seconds; nanoseconds are cut to microseconds."""
    written = value if isinstance(value, str) and _TIME.fullmatch(value) else None
    try:
        read = dt.datetime.fromisoformat(written or "")
    except ValueError:
        read = None
    if read is None or read.year not in _YEARS:
        raise _wrong(where, value, f"a time from {_YEARS[0]} to {_YEARS[-1]} such as 2026-12-01T03:00:00.5Z")
    return read.timestamp()


def _fingerprint(value: object, where: str) -> str:
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise _wrong(where, value, "1 to 64 digits 0-9a-f")
    return value


def _name(value: str) -> str:
    """A cluster's or pool's name; empty for what can be none."""
    return value if NAME.fullmatch(value) else ""


def _texts(value: object, where: str) -> dict[str, str]:
    found = _object(value, where)
    for key, each in found.items():
        if not isinstance(each, str):
            raise _wrong(f"{where}.{_plain(key)}", each, "text")
    return {_plain(key): _plain(each) for key, each in found.items()}


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, value, "a JSON object")
    return value


def _plain(text: str) -> str:
    """Short and printable: no control sequence, no half of a surrogate pair, no zero byte."""
    return "".join(each if each.isprintable() else " " for each in text[:LENGTH_MAX])


def _wrong(where: str, value: object, allowed: str) -> Malformed:
    shown = "nothing" if value is None else _plain(str(value))
    cut = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return Malformed(f"{where}: {cut}, allowed: {allowed}")
