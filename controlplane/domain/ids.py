"""Names of things, and the ids of what is recorded.

Ids are handed in from outside and are no part of a plan's hash: the same plan
made in another cycle is the same plan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Self

InstanceId = NewType("InstanceId", str)
"""Our own name of one engine process: `<cluster>/<slot>@<start in base 36 seconds>`,
or `<cluster>/<namespace>/<pod uid>`. Never Prometheus' `instance` label."""

PoolName = NewType("PoolName", str)
NodeId = NewType("NodeId", str)

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What a cluster or a pool may be called (a DNS label), so that ids can be taken apart again."""


def base36(number: int) -> str:
    """A whole number in base 36, digits before letters, as an instance id writes its start."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, rest = divmod(number, 36)
        text = digits[rest] + text
    return text or "0"


class CycleKind(StrEnum):
    """The two clocks: weights every few seconds, capacity every 15 to 30."""

    WEIGHTS = "weights"
    CAPACITY = "capacity"


class Source(StrEnum):
    """Where a recorded run's world came from. Only `live` runs share one memory across restarts."""

    LIVE = "live"
    BACKFILL = "backfill"  # the past, read from Prometheus
    BACKTEST = "backtest"  # the past, decided again under other policies
    DEMO = "demo"


@dataclass(frozen=True, slots=True, order=True)
class CycleId:
    """`<cluster>:<kind>:<seq>`, for example `demo:weights:42`."""

    cluster: str
    kind: CycleKind
    seq: int

    def __str__(self) -> str:
        return f"{self.cluster}:{self.kind}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `demo:weights:42`. Raises ValueError, naming the form, on anything else."""
        parts = text.split(":")
        if len(parts) != 3 or not parts[2].isdigit() or parts[1] not in set(CycleKind):
            raise ValueError(f"{text!r} is no cycle id; one looks like demo:weights:42")
        return cls(parts[0], CycleKind(parts[1]), int(parts[2]))


@dataclass(frozen=True, slots=True, order=True)
class DecisionId:
    """A cycle's answer for one pool: `<cycle>:<pool>`, for example `demo:weights:42:chat-8b`."""

    cycle: CycleId
    pool: PoolName

    def __str__(self) -> str:
        return f"{self.cycle}:{self.pool}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `demo:weights:42:chat-8b`. Raises ValueError on anything else."""
        cycle, _, pool = text.rpartition(":")
        if not NAME.fullmatch(pool):
            raise ValueError(f"{text!r} is no decision id; one looks like demo:weights:42:chat-8b")
        return cls(CycleId.parse(cycle), PoolName(pool))


@dataclass(frozen=True, slots=True, order=True)
class ActionId:
    """The n-th action of a decision: `<decision>:<n>`. Every effect carries it."""

    decision: DecisionId
    ordinal: int

    def __str__(self) -> str:
        return f"{self.decision}:{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `demo:weights:42:chat-8b:0`. Raises ValueError on anything else."""
        decision, _, ordinal = text.rpartition(":")
        if not ordinal.isdigit():
            raise ValueError(f"{text!r} is no action id; one looks like demo:weights:42:chat-8b:0")
        return cls(DecisionId.parse(decision), int(ordinal))
