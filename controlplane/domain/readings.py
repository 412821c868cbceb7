"""What was read, and what could not be read. Missing is a value with a cause, never zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]


class Cause(StrEnum):
    """Why a reading is missing. The order is part of the stored form: only append."""

    NONE = "none"  # the reading is known
    NOT_EXPORTED = "not_exported"  # the instance reports, but not this series
    UNSEEN = "unseen"  # no series of this instance at all: its scrape failed, or it is gone
    STALE = "stale"  # the raw sample is older than the policy's max age
    FROZEN = "frozen"  # fresh timestamps on counters that stand still while work arrives
    NOT_FINITE = "not_finite"  # NaN or infinite where a number is due
    OUT_OF_RANGE = "out_of_range"  # vendor sentinel, negative count, ratio above its range
    NO_TRAFFIC = "no_traffic"  # a quantile or mean over nothing: proven idle
    UNRESOLVABLE = "unresolvable"  # a quantile inside the first bucket, or in +Inf
    TOO_FEW = "too_few"  # fewer samples in the window than the figure needs
    INCONSISTENT = "inconsistent"  # several series claim the same reading, or buckets fall
    WINDOW_TOO_SHORT = "window_too_short"  # the window holds fewer than four scrapes, or overlaps a gap
    QUERY_FAILED = "query_failed"  # the source refused, broke off or answered nonsense
    QUERY_TIMEOUT = "query_timeout"  # the source did not answer in time
    EMPTY = "empty"  # the source answered with no series at all for anybody
    PARTIAL = "partial"  # the source itself says that its answer is incomplete
    CLOCK_SKEW = "clock_skew"  # the source's clock and ours disagree too much
    NOT_ASKED = "not_asked"  # this kind of cycle does not ask for it
    NOT_READY = "not_ready"  # the instance is not serving yet, so the figure has no meaning


CAUSES: tuple[Cause, ...] = tuple(Cause)
"""Causes by their code in a column (`CAUSES[code]`)."""

_CODE: Mapping[Cause, int] = {cause: code for code, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True)
class Known:
    """A reading. `sampled_at` is the raw sample's own time, epoch seconds, not the query's."""

    value: float
    sampled_at: float


@dataclass(frozen=True, slots=True)
class Missing:
    """The absence of a reading, with its cause and, for people, a detail."""

    cause: Cause
    detail: str = ""


Reading = Known | Missing


class Signal(StrEnum):
    """What is known of ONE instance. The value is the middle of its series' name:
    `trimtab:instance:<signal>_<unit>`; units stand in `UNITS`."""

    UP = "up"
    GPU_UTILISATION = "gpu_utilisation"  # device counter: some kernel ran; saturates early
    SM_ACTIVE = "sm_active"  # profiling counter, preferred where exported
    DRAM_ACTIVE = "dram_active"
    GPU_MEMORY = "gpu_memory"
    GPU_SPREAD = "gpu_spread"  # max - min of utilisation inside an instance with tp > 1
    SM_CLOCK = "sm_clock"
    GPU_TEMPERATURE = "gpu_temperature"
    GPU_POWER = "gpu_power"
    XID = "xid"
    KV_CACHE = "kv_cache"
    RUNNING = "running"
    WAITING = "waiting"
    RUNNING_MEAN = "running_mean"  # mean of `running` over the window that STEP_TIME covers
    STEP_TIME = "step_time"  # mean inter-token latency over the window
    TTFT_P95 = "ttft_p95"
    E2E_P95 = "e2e_p95"
    COMPLETIONS = "completions"  # finished requests a second, over the window
    ERRORS = "errors"
    PREEMPTIONS = "preemptions"
    PROMPT_TOKENS = "prompt_tokens"
    GENERATION_TOKENS = "generation_tokens"
    CPU = "cpu"  # processor seconds a second of the engine process
    PROGRESS = "progress"  # sum of token and processor-time rates over four scrapes: 0 = stands still


class PoolSignal(StrEnum):
    """What is known of a whole pool: `trimtab:pool:<signal>_<unit>`."""

    ARRIVALS = "arrivals"  # requests a second at the gateway
    REFUSALS = "refusals"  # refused by the gateway, a second
    ARRIVALS_NOW = "arrivals_now"  # as `arrivals`, over four scrapes: the first to see a crowd
    REFUSALS_NOW = "refusals_now"
    GATEWAY_QUEUE = "gateway_queue"
    GATEWAY_IN_FLIGHT = "gateway_in_flight"
    TTFT_P95 = "ttft_p95"  # by the engines, which do not see the queue before them
    TPOT_P95 = "tpot_p95"
    E2E_P95 = "e2e_p95"
    DOOR_TTFT_P95 = "door_ttft_p95"  # as callers saw it, queue included
    DOOR_E2E_P95 = "door_e2e_p95"
    COMPLETIONS = "completions"
    PROMPT_MEAN = "prompt_mean"  # tokens, of requests that finished in the window
    OUTPUT_MEAN = "output_mean"
    OUTPUT_SQUARE_MEAN = "output_square_mean"  # E[L^2], tokens squared
    CANCELLED_RATIO = "cancelled_ratio"  # share of gateway requests that callers gave up or that were cut


UNITS: Mapping[Signal | PoolSignal, str] = {
    Signal.UP: "bool",
    Signal.GPU_UTILISATION: "ratio",
    Signal.SM_ACTIVE: "ratio",
    Signal.DRAM_ACTIVE: "ratio",
    Signal.GPU_MEMORY: "ratio",
    Signal.GPU_SPREAD: "ratio",
    Signal.SM_CLOCK: "megahertz",
    Signal.GPU_TEMPERATURE: "celsius",
    Signal.GPU_POWER: "watts",
    Signal.XID: "code",
    Signal.KV_CACHE: "ratio",
    Signal.RUNNING: "requests",
    Signal.WAITING: "requests",
    Signal.RUNNING_MEAN: "requests",
    Signal.STEP_TIME: "seconds",
    Signal.TTFT_P95: "seconds",
    Signal.E2E_P95: "seconds",
    Signal.COMPLETIONS: "per_second",
    Signal.ERRORS: "per_second",
    Signal.PREEMPTIONS: "per_second",
    Signal.PROMPT_TOKENS: "per_second",
    Signal.GENERATION_TOKENS: "per_second",
    Signal.CPU: "ratio",
    Signal.PROGRESS: "per_second",
    PoolSignal.ARRIVALS: "per_second",
    PoolSignal.REFUSALS: "per_second",
    PoolSignal.ARRIVALS_NOW: "per_second",
    PoolSignal.REFUSALS_NOW: "per_second",
    PoolSignal.GATEWAY_QUEUE: "requests",
    PoolSignal.GATEWAY_IN_FLIGHT: "requests",
    PoolSignal.TTFT_P95: "seconds",
    PoolSignal.TPOT_P95: "seconds",
    PoolSignal.E2E_P95: "seconds",
    PoolSignal.DOOR_TTFT_P95: "seconds",
    PoolSignal.DOOR_E2E_P95: "seconds",
    PoolSignal.COMPLETIONS: "per_second",
    PoolSignal.PROMPT_MEAN: "tokens",
    PoolSignal.OUTPUT_MEAN: "tokens",
    PoolSignal.OUTPUT_SQUARE_MEAN: "tokens_squared",
    PoolSignal.CANCELLED_RATIO: "ratio",
}
# One enum key could shadow the other ("ttft_p95" names a signal of both kinds): StrEnum members
# compare equal as strings, so both kinds must agree on the unit of a shared name. They do.


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One signal over all instances of an observation, as parallel arrays of one length n.

    `value` float64 (NaN where not ok), `ok` bool, `cause` uint8 into `CAUSES`,
    `sampled_at` float64 epoch seconds (NaN where not ok). Read-only. Not a masked
    array: `if masked:` is False, and a missing reading would become "not breached".
    """

    value: Floats
    ok: Bools
    cause: Codes
    sampled_at: Floats

    def __post_init__(self) -> None:
        for array in (self.value, self.ok, self.cause, self.sampled_at):
            array.flags.writeable = False

    def __len__(self) -> int:
        return int(self.value.shape[0])

    def __getitem__(self, index: int) -> Reading:
        """The reading of instance `index`, in its border form."""
        if self.ok[index]:
            return Known(float(self.value[index]), float(self.sampled_at[index]))
        return Missing(CAUSES[int(self.cause[index])])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Column)
            and np.array_equal(self.value, other.value, equal_nan=True)
            and np.array_equal(self.ok, other.ok)
            and np.array_equal(self.cause, other.cause)
            and np.array_equal(self.sampled_at, other.sampled_at, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Self:
        """Build a column from border readings, one an instance."""
        known = [r if isinstance(r, Known) else None for r in readings]
        causes = [_CODE[r.cause] if isinstance(r, Missing) else 0 for r in readings]
        return cls(
            value=np.array([k.value if k else np.nan for k in known], dtype=np.float64),
            ok=np.array([k is not None for k in known], dtype=np.bool_),
            cause=np.array(causes, dtype=np.uint8),
            sampled_at=np.array([k.sampled_at if k else np.nan for k in known], dtype=np.float64),
        )

    @classmethod
    def missing(cls, n: int, cause: Cause) -> Self:
        """A column in which nothing is known, for one cause."""
        return cls.of([Missing(cause)] * n)

    def without(self, where: Bools, cause: Cause) -> Column:
        """The same column with the known readings at `where` (bool, n) declared missing."""
        gone = where & self.ok
        return Column(
            value=np.where(gone, np.nan, self.value),
            ok=self.ok & ~gone,
            cause=np.where(gone, np.uint8(_CODE[cause]), self.cause),
            sampled_at=np.where(gone, np.nan, self.sampled_at),
        )

    def take(self, index: npt.NDArray[np.intp]) -> Column:
        """The rows at `index`, in that order."""
        return Column(self.value[index], self.ok[index], self.cause[index], self.sampled_at[index])
