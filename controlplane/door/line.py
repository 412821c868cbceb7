"""One line of the gateway's log, taken apart. Pure.

The line is written when a request ENDS (`adapters/gateways/haproxy/render.py` says what it holds).
HAProxy's termination code tells who ended it (`-` for a normal end, C/c for the caller, S/s for the engine,
P for a rule of the gateway) and by its second letter in which phase.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST = 8192
"""Bytes of a line at most; the gateway's own bound is 4096."""

DEFAULT_CLASS = "default"
NOBODY = "none"
"""The slot of a request that reached no instance."""

_GATEWAY_ANSWERED = "-PL"
"""A normal end, and answers of the gateway's own. All other letters are breaks: by the engine (S, s), by a
person at the gateway (K), because a server went down or came up (D, U), for want of something (R, I)."""

_LONGEST_MS = 30 * 86_400_000.0
_LATEST_MS = 253_402_300_799_000.0  # the end of year 9999
_NAME_MAX = 64
_NOT_SET = frozenset({"", "-", "<NOSRV>"})


class Malformed(ValueError):
    """No line of ours; the message says what is wrong with it."""


class Outcome(StrEnum):
    """What became of a request. `CUT` has the status of a success and is a failure."""

    OK = "ok"
    REFUSED = "refused"  # by a limit of the gateway, before any instance: demand that was not served
    FAILED = "failed"  # an error instead of an answer
    CUT = "cut"  # the answer had begun and the engine broke it off
    LEFT = "left"  # the caller went away first
    INVALID = "invalid"  # the caller's own mistake: 4xx


@dataclass(frozen=True, slots=True)
class Line:
    """One ended request. Times in seconds, None where that phase was not reached; `arrived_at` and
    `ended_at` epoch seconds, the latter when the line was written, None where an older gateway's line does
    not say so. `pid` is the gateway process that wrote it."""

    pid: int
    arrived_at: float | None
    ended_at: float | None
    pool: str
    slot: str
    class_: str
    status: int
    outcome: Outcome
    wait_s: float | None
    ttft_s: float | None
    total_s: float | None


def parse(raw: bytes) -> Line:
    """A line without its line break. Raises Malformed."""
    if len(raw) > LONGEST:
        raise Malformed(f"{len(raw)} bytes; {LONGEST} at most")
    try:
        found = json.loads(raw)
        return _line(found)
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError) as error:
        raise Malformed(f"{type(error).__name__} in {raw[:80]!r}") from error


def _line(found: dict[str, Any]) -> Line:
    status, termination = _status(found["status"]), str(found["termination"])
    return Line(
        pid=_whole(found["pid"]),
        arrived_at=_seconds(found.get("arrived_ms"), _LATEST_MS),
        ended_at=_seconds(found.get("ended_ms"), _LATEST_MS),
        pool=_name(found["pool"], NOBODY),
        slot=_name(found["server"], NOBODY),
        class_=_name(found.get("class", ""), DEFAULT_CLASS),
        status=status,
        outcome=outcome(status, termination),
        wait_s=_seconds(found["wait_ms"]),
        ttft_s=_seconds(found["ttft_ms"]),
        total_s=_seconds(found["total_ms"]),
    )


def outcome(status: int, termination: str) -> Outcome:
    """What a status and a termination code say together: neither says it alone.

    `CD 200` is a caller who left within a stream, `SD 200` an engine that broke one off, `PR 503` and
    `sQ 503` a full queue and a wait that ran out, `SC 503` an engine that took no connection.
    """
    who, phase = (*termination, "-", "-")[:2]
    if who in "Cc":
        return Outcome.LEFT
    if who == "P" or phase == "Q":
        return Outcome.REFUSED if status in {429, 503} else _by_status(status)
    if who in _GATEWAY_ANSWERED or status >= 400:
        return _by_status(status)
    return Outcome.CUT


def _by_status(status: int) -> Outcome:
    if 200 <= status < 400:
        return Outcome.OK
    return Outcome.INVALID if 400 <= status < 500 else Outcome.FAILED


def _status(value: object) -> int:
    """HAProxy writes -1 or 0 for the status of a request that got none."""
    status = _whole(value)
    if status not in {-1, 0} and not 100 <= status <= 599:
        raise Malformed(f"{status} where a status is due")
    return status


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**31:
        raise Malformed(f"{str(value)[:20]!r} where a whole number is due")
    return value


def _name(value: object, absent: str) -> str:
    if not isinstance(value, str) or len(value) > _NAME_MAX or not value.isprintable():
        raise Malformed("a name that is none")
    return absent if value in _NOT_SET else value


def _seconds(value: object, most_ms: float = _LONGEST_MS) -> float | None:
    """Milliseconds as a number or as text; a phase that was not reached is -1, empty or `-`."""
    if value is None or value in _NOT_SET:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Malformed("a time that is none")
    milliseconds = float(value)
    if not milliseconds <= most_ms:  # also false for NaN
        raise Malformed("a time that is none")
    return milliseconds / 1000.0 if milliseconds >= 0.0 else None
