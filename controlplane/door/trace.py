"""The routing log as a trace: when, of which class, how long it waited and took, and what came of it.

No prompt text and no key stand in the gateway's line, so none can get here. Token counts are not known at
the door; their columns are there for who fills them.
"""

from __future__ import annotations

import csv
import io
import logging
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from controlplane.door.line import Line
from controlplane.ports import InvalidConfig

COLUMNS = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "class",
    "pool",
    "wait_s",
    "ttft_s",
    "total_s",
    "status",
    "outcome",
)


class TraceFile:
    """A CSV file, with `keep` older ones beside it as `.1`, `.2`, ... Raises InvalidConfig where it can't
    be made."""

    def __init__(self, path: Path, most_bytes: int = 64 << 20, keep: int = 4) -> None:
        try:
            self._file = _Rotating(path, maxBytes=most_bytes, backupCount=keep, encoding="utf-8")
        except OSError as error:
            raise InvalidConfig([f"trace {path} cannot be written: {error.strerror}"]) from error
        self._began: float | None = None

    def write(self, line: Line) -> None:
        """One row; a request that reached no pool is no load of any."""
        if line.arrived_at is None:
            return
        self._began = line.arrived_at if self._began is None else self._began
        row = (line.arrived_at - self._began, None, None, line.class_, line.pool)
        row += (line.wait_s, line.ttft_s, line.total_s, line.status, line.outcome.value)  # type: ignore[assignment]
        self._file.emit(logging.makeLogRecord({"msg": _csv(row)}))

    @property
    def unwritten(self) -> int:
        """Rows that a full disk, or whatever it was, kept from being written."""
        return self._file.unwritten

    def close(self) -> None:
        """Flush and close."""
        with suppress(OSError):
            self._file.close()


class _Rotating(RotatingFileHandler):
    """Each file begins with the header."""

    terminator = ""
    unwritten = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # the base class's
        """Count it: a trace that can't be written is no reason to stop measuring."""
        self.unwritten += 1

    def _open(self) -> io.TextIOWrapper:
        stream = super()._open()
        if stream.tell() == 0:
            stream.write(_csv(COLUMNS))
        return stream


def _csv(row: tuple[object, ...]) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerow(
        f"{each:.3f}" if isinstance(each, float) else "" if each is None else each for each in row
    )
    return sink.getvalue()
