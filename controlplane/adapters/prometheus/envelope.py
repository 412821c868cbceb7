"""Prometheus' answer, taken apart completely: nothing in it is trusted to have its usual shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from controlplane.domain.readings import Cause

_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[Ii]nf|NaN)", re.ASCII)
_TIMEOUTS = frozenset({"timeout", "canceled"})
_HARMLESS = "PromQL info:"
_LATEST_S = 253_402_300_799  # the end of year 9999
_QUOTED = 4096  # far more than is shown: secrets are masked before the text is cut to what is shown


class BadAnswer(Exception):
    """What came is no usable instant vector. `cause` is what its readings are missing for."""

    def __init__(self, detail: str, cause: Cause = Cause.QUERY_FAILED) -> None:
        super().__init__(detail)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant vector. `at`: the instant of evaluation, by the server's clock."""

    labels: Mapping[str, str]
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Vector:
    """A whole answer. `warnings`: the source says that something is missing in it; `notes`: remarks
    about the query that leave the data complete."""

    samples: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse(status: int, body: bytes) -> Vector:
    """The vector in an HTTP answer. Raises BadAnswer for everything else, naming what was found."""
    envelope = _json(status, body)
    if envelope.get("status") != "success" or status != 200:
        raise _refusal(status, envelope)
    warnings, notes = _remarks(envelope)
    return Vector(_samples(envelope.get("data")), warnings, notes)


def _json(status: int, body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        start = body[:_QUOTED].decode("utf-8", "replace").strip()
        raise BadAnswer(f"HTTP {status}, not JSON ({type(error).__name__}): {start!r}") from None
    if not isinstance(found, dict):
        raise BadAnswer(f"HTTP {status}, a JSON {type(found).__name__} where an object is due")
    return found


def _no_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is no JSON")


def _refusal(status: int, envelope: Mapping[str, Any]) -> BadAnswer:
    kind, text = envelope.get("errorType"), envelope.get("error")
    cause = Cause.QUERY_TIMEOUT if isinstance(kind, str) and kind in _TIMEOUTS else Cause.QUERY_FAILED
    return BadAnswer(f"HTTP {status}, status {envelope.get('status')!r}, {kind}: {text}", cause)


def _remarks(envelope: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings and notes. Releases before 3.0 put remarks of both kinds under `warnings`."""
    said = _texts(envelope.get("warnings"))
    warnings = tuple(text for text in said if not text.startswith(_HARMLESS))
    notes = tuple(text for text in said if text.startswith(_HARMLESS))
    return warnings, notes + _texts(envelope.get("infos"))


def _texts(found: object) -> tuple[str, ...]:
    if found is None:
        return ()
    return tuple(str(text) for text in found) if isinstance(found, list) else (str(found),)


def _samples(data: object) -> tuple[Sample, ...]:
    if not isinstance(data, dict):
        raise BadAnswer("success, but no data")
    if data.get("resultType") != "vector":
        raise BadAnswer(f"result type {data.get('resultType')!r} where a vector is due")
    result = data.get("result")
    if not isinstance(result, list):
        raise BadAnswer(f"the result is a {type(result).__name__} where a list is due")
    return tuple(_sample(item) for item in result)


def _sample(item: object) -> Sample:
    match item:
        case {"metric": dict() as labels, "value": [int() | float() as at, str() as text]} if at is not True:
            return Sample(_labels(labels), _number(text), _instant(at))
        case {"histogram": _}:
            raise BadAnswer("a native histogram where a number is due")
    raise BadAnswer(f"a sample of an unknown shape: {str(item)[:_QUOTED]}")


def _labels(labels: Mapping[Any, Any]) -> Mapping[str, str]:
    if not all(isinstance(value, str) for value in labels.values()):
        raise BadAnswer("a label whose value is no text")
    return labels


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise BadAnswer(f"{text[:_QUOTED]!r} where a number is due")
    return float(text)


def _instant(at: float) -> float:
    if not 0.0 <= at <= _LATEST_S:
        raise BadAnswer("a timestamp beyond all clocks")
    return float(at)
