"""The sockets: what the loop needs from outside, as small protocols, and the errors they raise.

An adapter either answers in the port's own values or raises one of the errors below;
no library's exception crosses a port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from controlplane.domain.fleet import Inventory, Life, Place
from controlplane.domain.forecast import Forecast
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import ActionId, CycleId, CycleKind, InstanceId, PoolName
from controlplane.domain.loans import Loan
from controlplane.domain.observation import Hold, Observation, Reach, SourceHealth
from controlplane.domain.plan import Action, ActionState, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause, PoolSignal, Reading, Signal
from controlplane.domain.state import State


class PortError(Exception):
    """Base of everything an adapter may raise."""


class Unavailable(PortError):
    """The far side cannot be reached or did not answer in time. Nothing is known to have happened."""


class Refused(PortError):
    """The far side answered, and said no. Nothing happened."""


class OutcomeUnknown(PortError):
    """The request left and no answer came: it may or may not have taken effect. Never retried blindly."""


class Conflict(PortError):
    """The target is not as it was when we decided: somebody else wrote to it."""


class InvalidConfig(PortError):
    """A file or setting is wrong. `problems` holds all of them, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Clock(Protocol):
    """Time, handed in. `wall` in epoch seconds; `monotonic` never goes back and includes suspend."""

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...


@dataclass(frozen=True, slots=True)
class MetricsAnswer:
    """One cycle's readings as they came: by signal, then by our instance id; by pool.

    `absent`: why an instance that stands in no answer is missing for a signal (its query failed,
    answered nothing for anybody, is partial); a signal without an entry was not asked for.
    """

    instances: Mapping[Signal, Mapping[InstanceId, Reading]]
    pools: Mapping[PoolName, Mapping[PoolSignal, Reading]]
    health: SourceHealth
    absent: Mapping[Signal, Cause] = field(default_factory=dict)


class MetricsSource(Protocol):
    """Prometheus, in production. Never raises for a bad answer: it answers Missing, with causes."""

    def read(self, kind: CycleKind, policies: Policies, now: float) -> MetricsAnswer: ...


class Gateway(Protocol):
    """One gateway process. Levels only; `read` is the truth, `apply` is confirmed by reading again."""

    @property
    def name(self) -> str: ...

    def read(self) -> GatewayView:
        """The state now. Raises Unavailable."""
        ...

    def apply(self, actions: Sequence[tuple[ActionId, Action]]) -> Mapping[ActionId, tuple[ActionState, str]]:
        """Send levels, together where the gateway can. Answers a state (applied, unchanged,
        refused, failed or unknown) and a reason for EVERY action; does not raise."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """A level of life for one instance: `life` of `instance` in `pool`, at `place`. Every effect carries
    the id of its action, so that the far side can tell a repetition."""

    action: ActionId
    instance: InstanceId
    pool: PoolName
    place: Place
    life: Life


class Orchestrator(Protocol):
    """Who runs the engines. Levels only: the same order twice changes nothing.

    `reach` says which of the orders it takes; one that it does not take is Refused. An order that is
    accepted is no effect yet: the inventory shows when its level is reached.
    """

    @property
    def reach(self) -> Reach: ...

    def inventory(self) -> Inventory:
        """Everything that exists. Raises Unavailable."""
        ...

    def ensure(self, order: Order) -> None:
        """Bring an instance to a level of life, make it where there is none of its id. Raises Refused,
        Unavailable (nothing happened) or OutcomeUnknown."""
        ...

    def adopt(self, action: ActionId, instance: InstanceId) -> None:
        """Take an instance that others made under our management. Raises as `ensure`."""
        ...

    def set_instances(self, action: ActionId, pool: PoolName, count: int) -> None:
        """Ask for a pool's number of instances. Raises as `ensure`."""
        ...


class PolicySource(Protocol):
    """Where policies come from. Raises InvalidConfig with all problems; the caller keeps the last good."""

    def load(self) -> Policies: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """All that `decide` was given: what replay needs, and what is stored before anything is touched."""

    observation: Observation
    policies: Policies
    state: State
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One cycle as it is committed, in one transaction. `duration_s`: observe and decide."""

    cycle: CycleId
    started_at: float
    frame: Frame
    plan: Plan
    next_state: State
    code_version: str
    duration_s: float


class Ledger(Protocol):
    """The record. Every method is one short transaction; raises Unavailable, and then nothing may act."""

    def next_seq(self, kind: CycleKind) -> int: ...

    def last_state(self) -> State | None: ...

    def record(self, cycle: CycleRecord) -> Sequence[tuple[ActionId, Action]]:
        """Commit it, with what its plan says of loans; answers the actions that may be carried out now,
        in state APPLYING (those of pools in mode `auto`)."""
        ...

    def settle(self, outcomes: Mapping[ActionId, tuple[ActionState, str]], at: float) -> None: ...

    def unknown_actions(self) -> Sequence[tuple[ActionId, Action]]:
        """Actions left APPLYING or UNKNOWN by an earlier cycle or a crash, to be settled by observation."""
        ...

    def holds(self, now: float) -> Sequence[Hold]: ...

    def loans(self) -> Sequence[Loan]:
        """Those that stand open, in the order of their instances."""
        ...


class Lease(Protocol):
    """The right to act. `held` is asked again just before every effect."""

    def acquire(self) -> bool: ...

    def held(self) -> bool: ...

    def release(self) -> None: ...


class PageStatus(StrEnum):
    """Whether an alert still holds."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Notified:
    """One alert as somebody was told of it. Instants in epoch seconds; `ends_at` None while it fires.

    `fingerprint` (hexadecimal) is of its labels: with `starts_at` it names one page of a cluster.
    `pool` is empty for an alert about no pool; `severity`, `summary` and `runbook` where it has none.
    """

    cluster: str
    fingerprint: str
    starts_at: float
    ends_at: float | None
    alertname: str
    severity: str
    pool: str
    labels: Mapping[str, str]
    summary: str
    runbook: str

    @property
    def status(self) -> PageStatus:
        """Firing until it has ended."""
        return PageStatus.FIRING if self.ends_at is None else PageStatus.RESOLVED


class Pages(Protocol):
    """The pages on record. Told of one alert many times, it keeps one page and counts."""

    def keep(self, notified: Sequence[Notified], at: float) -> Sequence[Notified]:
        """Commit all of it or nothing. Answers what was news: pages that began, or that ended.

        Raises Unavailable, or Conflict where another writer was at it; telling again does no harm.
        """
        ...
