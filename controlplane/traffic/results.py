"""What became of each request: one JSON object a line, as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TextIO


class Outcome(StrEnum):
    """How a request ended, as its caller sees it: how its last attempt did."""

    OK = "ok"  # the whole answer, with the wanted tokens
    REFUSED = "refused"  # 429 or 503 with Retry-After: a limit said no
    FAILED = "failed"
    UNFINISHED = "unfinished"  # open when we ourselves stopped; says nothing of the fleet


@dataclass(frozen=True, slots=True)
class Result:
    """One request, however often it was tried. Absent figures are None, never zero.

    `sent_s` seconds from the play's start by the monotonic clock, `sent_at` the same in epoch
    seconds; `lateness_s` how long after its due time it was sent, which neither `ttft_s` (first
    content byte) nor `total_s` (end of the answer, or of the attempt) includes. `instance` is who
    answered, by the `x-twin-instance` header. `tokens` came, `output_tokens` were wanted.

    `attempts` (>= 1) were made; all but the last were given up. Times count from the first one's start,
    waits included; `status`, `instance`, `tokens`, `error` are the last one's. `sha256` (hex) of the text
    of a whole answer and `request_id` of the last attempt, where they were asked for.
    """

    sent_s: float
    sent_at: float
    model: str
    status: int | None
    outcome: Outcome
    ttft_s: float | None
    total_s: float
    tokens: int | None
    instance: str | None
    lateness_s: float
    prompt_tokens: int
    output_tokens: int
    error: str | None
    attempts: int = 1
    sha256: str | None = None
    request_id: str | None = None


_FIELDS = tuple(field.name for field in fields(Result))


class ResultsError(Exception):
    """A results file has a line that is not a result."""


class ResultWriter:
    """Appends results to a file, each flushed, so that a live view can follow it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, result: Result) -> None:
        """Append one result as a line. Raises OSError where the file cannot take it."""
        row = {name: _rounded(getattr(result, name)) for name in _FIELDS}
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._file.flush()


def _rounded(value: object) -> object:
    """Microseconds are what the clock is good for."""
    return round(value, 6) if isinstance(value, float) else value


def read_results(path: Path) -> list[Result]:
    """All results in `path`. A last line without its end is still being written, and is left out.

    Raises ResultsError, with file and line, for anything else.
    """
    with path.open(encoding="utf-8") as file:
        return list(_parsed(path, file))


def _parsed(path: Path, lines: TextIO) -> Iterator[Result]:
    for number, line in enumerate(lines, start=1):
        if line.endswith("\n"):
            yield _result(line, f"{path}:line {number}")


def _result(line: str, where: str) -> Result:
    try:
        row = json.loads(line)
        return Result(**(row | {"outcome": Outcome(row["outcome"])}))
    except (ValueError, TypeError, KeyError) as error:
        raise ResultsError(f"{where}: not a result: {error}") from error
