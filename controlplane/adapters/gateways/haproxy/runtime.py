"""HAProxy's runtime API: commands out, answers in, in one request within one deadline.

All commands of a call go joined by `;` on one line of one connection, which HAProxy
answers and closes: a thousand settings take some 20 ms that way and 130 ms one by one.
Each command ends its answer with an empty line, so a silent success is one empty line
and anything before it is a refusal's text.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controlplane.ports import OutcomeUnknown, Unavailable

ANSWER_MAX = 64 << 20
"""Bytes that are read of one answer; 20,000 servers need about 5 MB."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: one text for each setting (empty: done), then one for each question."""

    settings: tuple[str, ...]
    questions: tuple[str, ...]


class Deadline:
    """An instant by which everything must have happened, shared by the steps of one effect."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left. Raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline passed")
        return left


class Runtime(Protocol):
    """What the gateway needs of the runtime API."""

    def ask(self, questions: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        """Answers of `show ...` commands. Raises Unavailable."""
        ...

    def set(self, settings: Sequence[str], questions: Sequence[str], deadline: Deadline) -> Answer:
        """Settings, then questions, as one request. Raises Unavailable while nothing was sent,
        OutcomeUnknown afterwards."""
        ...

    def tell(self, commands: Sequence[str], deadline: Deadline) -> str:
        """Commands whose answers cannot be told apart, as one request; all that came back.

        Raises as `set` does. `del server`, and some refusals of `add server`, end without an
        empty line: among others on one line they would pass for a neighbour's answer.
        """
        ...


class RuntimeSocket:
    """The runtime API on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, questions: Sequence[str], deadline: Deadline) -> tuple[str, ...]:
        """Answers of `show ...` commands. Raises Unavailable."""
        try:
            return self.set((), questions, deadline).questions
        except OutcomeUnknown as error:  # a question changes nothing, whatever became of it
            raise Unavailable(str(error)) from error

    def set(self, settings: Sequence[str], questions: Sequence[str], deadline: Deadline) -> Answer:
        """Settings, then questions, as one request; see `Runtime.set`."""
        answer = self._exchange(_line([*settings, *questions]), deadline)
        return _split(answer, len(settings), len(questions))

    def tell(self, commands: Sequence[str], deadline: Deadline) -> str:
        """Commands whose answers cannot be told apart, as one request; see `Runtime.tell`."""
        return " ".join(self._exchange(_line(commands), deadline).split())

    def _exchange(self, line: str, deadline: Deadline) -> str:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no file descriptor left
            raise Unavailable(f"{self._path}: {_words(error)}") from error
        with connection:
            try:
                connection.settimeout(deadline.left())
                connection.connect(str(self._path))
            except OSError as error:
                raise Unavailable(f"{self._path}: {_words(error)}") from error
            try:
                connection.sendall(line.encode("ascii"))
                return _read_all(connection, deadline)
            except OSError as error:
                raise OutcomeUnknown(f"{self._path}: sent, then {_words(error)}") from error


def _line(commands: Sequence[str]) -> str:
    line = ";".join(commands)
    if "\n" in line or line.count(";") != len(commands) - 1:
        raise ValueError("a runtime command may hold neither a line break nor a semicolon")
    return line + "\n"


def _read_all(connection: socket.socket, deadline: Deadline) -> str:
    """To end of file: in prompt-less mode HAProxy closes after the line's last answer."""
    parts: list[bytes] = []
    size = 0
    while True:
        connection.settimeout(deadline.left())
        part = connection.recv(1 << 18)
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)
        size += len(part)
        if size > ANSWER_MAX:
            raise OSError(f"an answer beyond {ANSWER_MAX} bytes")


def _split(text: str, settings: int, questions: int) -> Answer:
    """Take an answer apart at its empty lines. Raises OutcomeUnknown where the parts are not all there."""
    parts: list[str] = [""]
    for line in text.split("\n"):
        if line:
            parts[-1] += f"{line}\n"
        else:
            parts.append("")
    whole = [part.strip() for part in parts]
    if len(whole) < settings + questions:
        raise OutcomeUnknown(f"{settings + questions} commands were sent, {len(whole)} answers came")
    asked = [part for part in whole[settings:] if part][:questions]
    if len(asked) < questions:
        raise OutcomeUnknown(f"{questions} questions were asked, {len(asked)} answers came")
    return Answer(tuple(whole[:settings]), tuple(asked))


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
