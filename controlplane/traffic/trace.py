"""A trace: when requests arrive and how long they are. Values and their checks; no IO."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
MAX_ARRIVAL_S = 366 * 86_400.0
"""A year. Epoch seconds or milliseconds in this column are a mistake, and land above it."""
MAX_TOKENS = 10_000_000
MAX_DISORDER_S = 600.0
"""A log written at the requests' ends is out of order by their durations. More is another fault."""
SHOWN_PROBLEMS = 20


class TraceError(Exception):
    """A trace cannot be played. `problems`: one sentence each (the first 20); `total`: how many in all."""

    def __init__(self, problems: Sequence[str], total: int | None = None) -> None:
        self.total = len(problems) if total is None else total
        self.problems = tuple(problems[:SHOWN_PROBLEMS])
        hidden = self.total - len(self.problems)
        super().__init__("\n".join([*self.problems, *([f"... and {hidden} more"] if hidden else [])]))


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival, as parallel arrays of one length n >= 1. Read-only.

    `arrival_s` float64, seconds from the trace's start; `prompt_tokens`, `output_tokens` int64, >= 1.
    `lasts_s`: how long it is where that is known; a file says only when its last request came.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    lasts_s: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.arrival_s, self.prompt_tokens, self.output_tokens):
            array.flags.writeable = False

    def __len__(self) -> int:
        return int(self.arrival_s.shape[0])

    @property
    def period_s(self) -> int:
        """Whole seconds after which the trace may repeat: its length, or the first above its last arrival."""
        return max(int(self.arrival_s[-1]) + 1, math.ceil(self.lasts_s))

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Self:
        """The requests at `index` (positions or a mask), in that order."""
        arrays = (self.arrival_s[index], self.prompt_tokens[index], self.output_tokens[index])
        return type(self)(*arrays, self.lasts_s)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as a reader found it: numbers (NaN where unreadable) and, there, the text."""

    number: Floats
    text: dict[int, str]

    def shown(self, at: int) -> str:
        """The value of position `at`, as the file has it."""
        return self.text.get(at, f"{self.number[at]:.12g}")


@dataclass(frozen=True, slots=True)
class Raw:
    """A file's three columns before any check. `unit` is `line` or `row`, `numbers` where each stands."""

    file: str
    unit: str
    numbers: Ints
    columns: dict[str, Column]


def checked(raw: Raw, earlier: Sequence[tuple[int, str]] = ()) -> Trace:
    """The trace, sorted, or TraceError with every problem of every row.

    `earlier`: problems that the reader met itself, as (line or row, sentence).
    """
    problems = [*earlier, *_problems(raw)]
    if problems:
        problems.sort(key=lambda problem: problem[0])
        raise TraceError([f"{raw.file}:{raw.unit} {n}: {text}" for n, text in problems])
    if raw.numbers.size == 0:
        raise TraceError([f"{raw.file}: no requests in it; at least 1 is needed"])
    return _sorted(raw)


def _sorted(raw: Raw) -> Trace:
    arrival = raw.columns["arrival_s"].number
    order = np.argsort(arrival, kind="stable")
    prompt, output = (raw.columns[name].number[order].astype(np.int64) for name in COLUMNS[1:])
    return Trace(arrival[order], prompt, output)


def _problems(raw: Raw) -> Iterator[tuple[int, str]]:
    arrival = raw.columns["arrival_s"]
    good = (arrival.number >= 0) & (arrival.number <= MAX_ARRIVAL_S)
    yield from _bad(raw, "arrival_s", ~good, f"a number from 0 to {MAX_ARRIVAL_S:.0f} (seconds)")
    yield from _disorder(raw, good)
    for name in COLUMNS[1:]:
        value = raw.columns[name].number
        whole = (value >= 1) & (value <= MAX_TOKENS) & (value == np.trunc(value))
        yield from _bad(raw, name, ~whole, f"a whole number from 1 to {MAX_TOKENS}")


def _bad(raw: Raw, name: str, where: npt.NDArray[np.bool_], allowed: str) -> Iterator[tuple[int, str]]:
    for at in np.flatnonzero(where):
        yield int(raw.numbers[at]), f"{name} is {raw.columns[name].shown(int(at))}; allowed: {allowed}"


def _disorder(raw: Raw, good: npt.NDArray[np.bool_]) -> Iterator[tuple[int, str]]:
    """Rows that lie too far behind the latest arrival above them to be a matter of sorting."""
    arrival = raw.columns["arrival_s"].number
    latest = np.maximum.accumulate(np.where(good, arrival, 0.0))
    for at in np.flatnonzero(good & (arrival < latest - MAX_DISORDER_S)):
        allowed = (
            f"{latest[at] - MAX_DISORDER_S:.12g} or more (out of order by {MAX_DISORDER_S:.0f} s at most)"
        )
        yield (
            int(raw.numbers[at]),
            f"arrival_s is {arrival[at]:.12g}, after {latest[at]:.12g}; allowed: {allowed}",
        )
