"""What to play to which model: a closed form, from a file or the command line, made into a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from controlplane.traffic.client import Client, Retry
from controlplane.traffic.course import steady
from controlplane.traffic.readers import read_trace
from controlplane.traffic.scale import (
    MAX_COPIES,
    Cost,
    CostFn,
    Played,
    Target,
    Window,
    clip,
    jittered,
    scale_to,
    scaled,
)
from controlplane.traffic.seeded import SHAPES, seeded_trace
from controlplane.traffic.trace import MAX_ARRIVAL_S, MAX_TOKENS, Trace, TraceError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MixError(Exception):
    """A mix cannot be played. `problems`: all of them, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SeededForm(_Closed):
    """A trace to be drawn; see `seeded.SHAPES`. `rate` in requests/s, None: the shape's own; `steady`: it
    is the same from the first second to the last, and not by the shape's course."""

    shape: Literal["chat", "code", "mixed", "reason", "day", "batch"] = "chat"
    seed: Annotated[int, Field(ge=0)] = 0
    rate: Positive | None = None
    steady: bool = False


class CostForm(_Closed):
    """The parts of `scale.Cost`."""

    request: NotNegative = 0.0
    prompt: NotNegative = 0.0
    output: NotNegative = 0.0
    output_context: NotNegative = 0.0

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not any((self.request, self.prompt, self.output, self.output_context)):
            raise ValueError("all parts are 0; allowed: at least one above 0")
        return self


class PeakForm(_Closed):
    """A wanted peak: `share` of `capacity`, in the cost's unit per second (without a cost: requests)."""

    capacity: Positive
    share: Annotated[float, Field(gt=0, le=1)] = 0.85
    cost: CostForm = CostForm(request=1.0)


class RetryForm(_Closed):
    """The parts of `client.Retry`: up to `attempts` of each request, at least `wait_s` seconds apart."""

    attempts: Annotated[int, Field(ge=1, le=100)]
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 1.0


class Entry(_Closed):
    """One model's traffic: from `trace` or `seeded` (neither: the `chat` shape), scaled by `copies` or
    to `peak` (neither: as it is), from second `from` on (absent: around the busiest `peak_window_s`).

    Its client sends each request once, or comes back as `retry` says; `hash`: it names its attempts and
    hashes what it got."""

    model: Annotated[str, Field(min_length=1)]
    trace: Path | None = None
    seeded: SeededForm | None = None
    from_s: Annotated[int | None, Field(ge=0, alias="from")] = None
    copies: Annotated[float, Field(gt=0, le=MAX_COPIES)] | None = None
    peak: PeakForm | None = None
    peak_window_s: Annotated[int, Field(ge=1)] = 60
    max_context: Annotated[int, Field(ge=2, le=2 * MAX_TOKENS)] | None = None
    jitter_s: Annotated[float, Field(ge=0, le=MAX_ARRIVAL_S)] = 0.0
    scale_seed: Annotated[int, Field(ge=0)] = 0
    retry: RetryForm | None = None
    hashed: Annotated[bool, Field(alias="hash")] = False

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for one, other in (("trace", "seeded"), ("copies", "peak")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other}; allowed: one of them")
        return self

    @property
    def client(self) -> Client:
        """Who sends it."""
        retry = Retry() if self.retry is None else Retry(self.retry.attempts, self.retry.wait_s)
        return Client(retry, self.hashed)


@dataclass(frozen=True, slots=True)
class Part:
    """One model's traffic, ready. `source`: the file, or `seeded`; `clipped`: requests cut to the context;
    `client`: who sends it."""

    model: str
    source: str
    played: Played
    clipped: int
    client: Client

    def report(self) -> dict[str, object]:
        """How the traffic came about, for the report that shows its results."""
        played = self.played
        return {
            "model": self.model,
            "source": self.source,
            "requests": len(played.trace),
            "from_s": played.start_s,
            "repeats": played.repeats,
            "copies": played.copies,
            "thinned": played.thinned,
            "clipped": self.clipped,
            "peak": round(played.peak, 6),
            "target": played.target,
            "attempts": self.client.retry.attempts,
        }


def load_mix(path: Path) -> list[Entry]:
    """The entries in a JSON file; trace paths count from its folder. Raises MixError with all problems."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe waits for a writer
            raise MixError([f"{path}: is no plain file, allowed: a file"])
        entries = parse_mix(path.read_bytes(), str(path))
    except OSError as error:
        raise MixError([f"{path}: {error.strerror or error}"]) from error
    return [
        entry if entry.trace is None else entry.model_copy(update={"trace": path.parent / entry.trace})
        for entry in entries
    ]


def parse_mix(text: str | bytes, where: str) -> list[Entry]:
    """Entries from JSON text. Raises MixError, each problem with its place below `where`."""
    try:
        return TypeAdapter(Annotated[list[Entry], Field(min_length=1)]).validate_json(text)
    except ValidationError as error:
        raise MixError([_sentence(where, problem) for problem in error.errors()]) from error


def with_seed(entries: Sequence[Entry], seed: int) -> list[Entry]:
    """The entries; those whose traffic is drawn, and by no seed of their own, draw it by `seed`."""
    return [_with_seed(entry, seed) for entry in entries]


def _with_seed(entry: Entry, seed: int) -> Entry:
    form = entry.seeded or SeededForm()
    if entry.trace is not None or "seed" in form.model_fields_set:
        return entry
    return entry.model_copy(update={"seeded": form.model_copy(update={"seed": seed})})


def prepare(entries: Sequence[Entry], for_s: float) -> list[Part]:
    """Read or draw, clip and scale every entry's traffic. Raises MixError with the problems of all."""
    parts: list[Part] = []
    problems: list[str] = []
    for entry in entries:
        try:
            parts.append(_part(entry, for_s))
        except TraceError as error:
            problems += str(error).splitlines()
        except ValueError as error:
            problems.append(f"{entry.model}: {error}")
    if problems:
        raise MixError(problems)
    return parts


def _part(entry: Entry, for_s: float) -> Part:
    trace = _trace(entry, for_s)
    if entry.jitter_s:
        trace = jittered(trace, entry.jitter_s, entry.scale_seed)
    played = _scaled(entry, trace, for_s)
    cut, clipped = _clipped(entry, played.trace)
    return Part(entry.model, _source(entry), replace(played, trace=cut), clipped, entry.client)


def _trace(entry: Entry, for_s: float) -> Trace:
    if entry.trace is not None:
        return read_trace(entry.trace)
    form = entry.seeded or SeededForm()
    shape = replace(SHAPES[form.shape], course=steady) if form.steady else SHAPES[form.shape]
    return seeded_trace(shape, for_s, form.seed, form.rate)


def _source(entry: Entry) -> str:
    form = entry.seeded or SeededForm()
    drawn = f"seeded {form.shape}, seed {form.seed}{', steady' if form.steady else ''}"
    return str(entry.trace) if entry.trace else drawn


def _scaled(entry: Entry, trace: Trace, for_s: float) -> Played:
    window = Window(for_s, entry.from_s, min(entry.peak_window_s, max(1, int(for_s))))
    if entry.peak is None:
        return scaled(trace, window, entry.copies or 1.0, seed=entry.scale_seed)
    target = Target(_cost(entry, entry.peak.cost), entry.peak.capacity, entry.peak.share)
    return scale_to(trace, window, target, seed=entry.scale_seed)


def _cost(entry: Entry, form: CostForm) -> CostFn:
    """Cost of what will really be sent: of the lengths as they are clipped."""
    cost = Cost(**form.model_dump())
    return lambda trace: cost(_clipped(entry, trace)[0])


def _clipped(entry: Entry, trace: Trace) -> tuple[Trace, int]:
    return (trace, 0) if entry.max_context is None else clip(trace, entry.max_context)


def _sentence(where: str, problem: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
    said = problem["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(problem["input"], dict | list | bytes) else f" (it is {problem['input']!r})"
    return f"{where}: {place.lstrip('.') or 'the file'}: {said}{shown}"
