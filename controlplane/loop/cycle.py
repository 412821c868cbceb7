"""One pass: observe, decide, record, look again, act, settle.

Every step is one short function. An error of a port ends in a hold or in nothing done, never in
a crash: what the loop cannot know it does not act upon, and what it cannot record it does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.domain.decide import decide
from controlplane.domain.fleet import Instance, Inventory, Life
from controlplane.domain.forecast import Forecast
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import ActionId, CycleId, CycleKind, PoolName
from controlplane.domain.observation import Observation, Reach
from controlplane.domain.plan import Action, ActionKind, ActionState, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause, Missing
from controlplane.domain.state import PoolState, State
from controlplane.loop.observe import Answers, assemble
from controlplane.loop.orders import not_closed, send
from controlplane.loop.second_look import Now, Outcomes, Runnable, sift
from controlplane.loop.settle import settled
from controlplane.ports import (
    Clock,
    CycleRecord,
    Frame,
    Gateway,
    Lease,
    Ledger,
    MetricsSource,
    Orchestrator,
    PortError,
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside that a cycle touches. `orchestrator` None: nobody can be asked."""

    clock: Clock
    metrics: MetricsSource
    gateways: Mapping[str, Gateway]
    orchestrator: Orchestrator | None
    ledger: Ledger
    lease: Lease


@dataclass(frozen=True, slots=True)
class Report:
    """What one cycle came to. `memory`: the pools' state after it. `failure`: why it ended before
    acting, empty where it did not; or, with a plan, why what it did could not be written down."""

    kind: CycleKind
    cycle: CycleId | None = None
    observation: Observation | None = None
    plan: Plan | None = None
    outcomes: Mapping[ActionId, tuple[ActionState, str]] = field(default_factory=dict)
    memory: Mapping[PoolName, PoolState] = field(default_factory=dict)
    duration_s: float = 0.0
    failure: str = ""


class Loop:
    """Runs cycles, one at a time. `last_known` instances and `State` are its only memory, and the
    latter is the record's: it is read back at the start and after a failure, and replaced after a commit."""

    def __init__(
        self, cluster: str, ports: Ports, code_version: str, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._cluster = cluster
        self._ports = ports
        self._code_version = code_version
        self._stopping = stopping
        self._state: State | None = None
        self.last_known: tuple[Instance, ...] = ()

    def cycle(self, kind: CycleKind, policies: Policies) -> Report:
        """One pass. Never raises a PortError; anything else is a defect, and the runner's to catch."""
        started = self._ports.clock.monotonic()
        try:
            return self._pass(kind, policies, started)
        except PortError as error:
            self._state = None  # a commit whose answer was lost may be there: the record knows, we do not
            return Report(kind, failure=str(error) or type(error).__name__, duration_s=self._since(started))

    def _pass(self, kind: CycleKind, policies: Policies, started: float) -> Report:
        ledger, now = self._ports.ledger, self._ports.clock.wall()
        state = self._remembered()
        cycle = CycleId(self._cluster, kind, ledger.next_seq(kind))
        observation = self._observe(kind, policies, now)
        self._settle_unknown(observation, now)
        forecast = Forecast(made_at=now)
        plan, next_state = decide(observation, policies, state, forecast)
        frame = Frame(observation, policies, state, forecast)
        runnable = ledger.record(
            CycleRecord(cycle, now, frame, plan, next_state, self._code_version, self._since(started))
        )
        self._state = next_state
        outcomes = self._act(runnable, observation)
        failure = self._write(outcomes)
        return Report(
            kind, cycle, observation, plan, outcomes, next_state.pools, self._since(started), failure
        )

    def _remembered(self) -> State:
        if self._state is None:
            self._state = self._ports.ledger.last_state() or State()
        return self._state

    def _observe(self, kind: CycleKind, policies: Policies, now: float) -> Observation:
        inventory = self._inventory()
        answers = Answers(
            metrics=self._ports.metrics.read(kind, policies, now),
            inventory=inventory,
            gateways=self._views(self._ports.gateways),
            holds=tuple(self._ports.ledger.holds(now)),
            last_known=self.last_known,
            loans=tuple(self._ports.ledger.loans()),
            reach=Reach.NOTHING if self._ports.orchestrator is None else self._ports.orchestrator.reach,
        )
        return assemble(self._cluster, kind, now, answers)

    def _inventory(self) -> Inventory | Missing:
        if self._ports.orchestrator is None:
            return Missing(Cause.NOT_ASKED, "no orchestrator is configured")
        try:
            inventory = self._ports.orchestrator.inventory()
        except PortError as error:
            return Missing(Cause.QUERY_FAILED, str(error))
        self.last_known = inventory.instances
        return inventory

    def _views(self, names: Mapping[str, object]) -> dict[str, GatewayView | Missing]:
        return {name: self._view(self._ports.gateways[name]) for name in names}

    @staticmethod
    def _view(gateway: Gateway) -> GatewayView | Missing:
        try:
            return gateway.read()
        except PortError as error:
            return Missing(Cause.QUERY_FAILED, str(error))

    def _settle_unknown(self, observation: Observation, now: float) -> None:
        unknown = self._ports.ledger.unknown_actions()
        outcomes = settled(unknown, observation)
        if outcomes:
            self._ports.ledger.settle(outcomes, now)

    def _act(self, runnable: Runnable, observation: Observation) -> Outcomes:
        if not runnable:
            return {}
        fitting, outcomes = sift(runnable, observation, self._look_again(runnable))
        groups = _by_gateway(fitting)
        orders = groups.pop("", [])
        for name, group in groups.items():
            outcomes |= self._apply(name, group)
        return outcomes | send(self._ports.orchestrator, orders, not_closed(runnable, outcomes))

    def _write(self, outcomes: Outcomes) -> str:
        """Settle; answers why that failed. The effects are there all the same, so the cycle is told
        with its outcomes, and the next observation settles what stayed open."""
        try:
            if outcomes:
                self._ports.ledger.settle(outcomes, self._ports.clock.wall())
        except PortError as error:
            return f"outcomes could not be recorded: {error}"
        return ""

    def _look_again(self, runnable: Runnable) -> Now:
        return Now(
            leads=self._ports.lease.held(),
            stopping=self._stopping(),
            holds=self._ports.ledger.holds(self._ports.clock.wall()),
            gateways=self._views(self._touched(runnable)),
            inventory=self._inventory_again(runnable),
        )

    def _touched(self, runnable: Runnable) -> Mapping[str, object]:
        """Gateways that are written to; all, where somebody is ended who must be idle at each of them."""
        downward = (each.kind is ActionKind.ENSURE and each.level < Life.AWAKE.level for _, each in runnable)
        if any(downward):
            return self._ports.gateways
        return {each.gateway: each for _, each in runnable if each.gateway in self._ports.gateways}

    def _inventory_again(self, runnable: Runnable) -> Inventory | Missing:
        if all(action.gateway for _, action in runnable):
            return Missing(Cause.NOT_ASKED)
        return self._inventory()

    def _apply(self, name: str, group: Sequence[tuple[ActionId, Action]]) -> Outcomes:
        gateway = self._ports.gateways.get(name)
        if gateway is None:
            return {id_: (ActionState.REFUSED, f"no gateway is called {name}") for id_, _ in group}
        return dict(gateway.apply(group))

    def _since(self, started: float) -> float:
        return self._ports.clock.monotonic() - started


def _by_gateway(actions: Runnable) -> dict[str, list[tuple[ActionId, Action]]]:
    groups: dict[str, list[tuple[ActionId, Action]]] = {}
    for id_, action in actions:
        groups.setdefault(action.gateway, []).append((id_, action))
    return groups
