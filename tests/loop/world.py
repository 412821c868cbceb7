"""A fleet of stand-ins around a real loop, with one journal of what was called in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controlplane.adapters.memory.faults import Faults
from controlplane.adapters.memory.gateway import MemoryGateway
from controlplane.adapters.memory.metrics import MemoryMetrics
from controlplane.adapters.memory.orchestrator import MemoryOrchestrator
from controlplane.domain.fleet import Instance
from controlplane.domain.gateway import GatewayView, ServerView
from controlplane.domain.ids import ActionId, CycleKind, DecisionId, InstanceId, PoolName
from controlplane.domain.loans import Entry, Loan
from controlplane.domain.observation import Hold, Observation
from controlplane.domain.plan import Action, ActionKind, ActionState
from controlplane.domain.policy import Mode, Policies
from controlplane.domain.state import State
from controlplane.loop.cycle import Loop, Ports, Report
from controlplane.ports import CycleRecord, Gateway, Ledger, MetricsAnswer
from tests.builders import NOW, instances, inventory, policies, steady_pool

CHAT = PoolName("chat-8b")
EVEN = (1.0, 1.0, 1.0, 1.0)
SLOW = (1.0, 1.0, 1.0, 0.4)

Outcome = tuple[ActionState, str]


@dataclass(slots=True)
class HandClock:
    """Both clocks, moved by hand."""

    now: float = NOW
    up: float = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.up

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self.up += seconds


@dataclass(slots=True)
class MemoryLedger:
    """The ledger port over plain lists. `faults` orders errors by method; `then` runs after a call."""

    journal: list[str]
    records: list[CycleRecord] = field(default_factory=list)
    states: dict[ActionId, Outcome] = field(default_factory=dict)
    actions: dict[ActionId, Action] = field(default_factory=dict)
    people: list[Hold] = field(default_factory=list)
    lent: dict[InstanceId, Loan] = field(default_factory=dict)
    faults: dict[str, Faults] = field(default_factory=dict)
    then: dict[str, Callable[[], None]] = field(default_factory=dict)

    def break_next(self, method: str, reason: str = "the record is gone") -> None:
        self.faults.setdefault(method, Faults()).unavailable(reason=reason)

    def next_seq(self, kind: CycleKind) -> int:
        self._called("next_seq")
        return 1 + sum(each.cycle.kind is kind for each in self.records)

    def last_state(self) -> State | None:
        self._called("last_state")
        return self.records[-1].next_state if self.records else None

    def record(self, cycle: CycleRecord) -> Sequence[tuple[ActionId, Action]]:
        self._called("record")
        self.records.append(cycle)
        self._book(cycle)
        added = list(_actions(cycle))
        self.actions |= {id_: action for id_, action, _ in added}
        self.states |= {id_: (_first(mode), "") for id_, _, mode in added}
        self._after("record")
        return [(id_, action) for id_, action, mode in added if mode is Mode.AUTO]

    def settle(self, outcomes: Mapping[ActionId, Outcome], at: float) -> None:
        self._called("settle")
        unsettled = {id_ for id_, _ in self._unsettled()}
        self.states |= {id_: outcome for id_, outcome in outcomes.items() if id_ in unsettled}

    def unknown_actions(self) -> Sequence[tuple[ActionId, Action]]:
        self._called("unknown_actions")
        return self._unsettled()

    def loans(self) -> Sequence[Loan]:
        self._called("loans")
        return [self.lent[name] for name in sorted(self.lent)]

    def _book(self, cycle: CycleRecord) -> None:
        for each in cycle.plan.loans:
            if each.opens:
                assert each.instance not in self.lent, "opened twice"
                self.lent[each.instance] = _loan(cycle, each)
            else:
                del self.lent[each.instance]

    def holds(self, now: float) -> Sequence[Hold]:
        self._called("holds")
        return list(self.people)

    def _unsettled(self) -> list[tuple[ActionId, Action]]:
        open_ = {ActionState.APPLYING, ActionState.UNKNOWN}
        return [(id_, self.actions[id_]) for id_, (state, _) in self.states.items() if state in open_]

    def _called(self, method: str) -> None:
        self.faults.setdefault(method, Faults()).check()
        self.journal.append(method)

    def _after(self, method: str) -> None:
        self.then.pop(method, lambda: None)()


def _actions(cycle: CycleRecord) -> list[tuple[ActionId, Action, Mode]]:
    return [
        (ActionId(DecisionId(cycle.cycle, pool), number), action, decision.mode)
        for pool, decision in cycle.plan.decisions.items()
        for number, action in enumerate(decision.actions)
    ]


def _loan(cycle: CycleRecord, each: Entry) -> Loan:
    name = f"{cycle.cycle}:{each.instance}"
    return Loan(
        name, each.lender, each.borrower, each.instance, each.node, each.gpus, cycle.started_at, each.code
    )


def _first(mode: Mode) -> ActionState:
    return ActionState.APPLYING if mode is Mode.AUTO else ActionState.PROPOSED


@dataclass(slots=True)
class JournaledGateway:
    """A memory gateway that writes reads and sendings into the journal."""

    inner: MemoryGateway
    journal: list[str]

    @property
    def name(self) -> str:
        return self.inner.name

    def read(self) -> GatewayView:
        self.journal.append(f"read {self.name}")
        return self.inner.read()

    def apply(self, actions: Sequence[tuple[ActionId, Action]]) -> Mapping[ActionId, Outcome]:
        self.journal.append(f"apply {self.name}")
        return self.inner.apply(actions)


@dataclass(slots=True)
class MemoryLease:
    """The lease port over one flag."""

    ours: bool = True

    def acquire(self) -> bool:
        return self.ours

    def held(self) -> bool:
        return self.ours

    def release(self) -> None:
        self.ours = False


def answer(seen: Observation) -> MetricsAnswer:
    """What a metrics source would have said, had it seen this."""
    return MetricsAnswer(
        instances={
            signal: {each.instance_id: column[row] for row, each in enumerate(seen.instances)}
            for signal, column in seen.signals.items()
        },
        pools=seen.pools,
        health=seen.source,
    )


class World:
    """Four `chat-8b` instances behind one gateway `edge`, all steady until a test says otherwise."""

    def __init__(self, members: Sequence[Instance] | None = None, rules: Policies | None = None) -> None:
        self.members = tuple(members) if members is not None else instances(4)
        self.rules = rules or policies()
        self.speed: tuple[float, ...] = EVEN
        self.running: float = 10.0
        self.stopping = False
        self.journal: list[str] = []
        self.clock = HandClock()
        self.gateway = MemoryGateway.of(
            "edge", self.clock, {CHAT: [each.instance_id for each in self.members]}
        )
        self.metrics = MemoryMetrics([self._seen])
        self.orchestrator = MemoryOrchestrator(inventory(self.members))
        self.ledger = MemoryLedger(self.journal)
        self.lease = MemoryLease()
        self.loop = self.restarted()

    def restarted(self, ledger: Ledger | None = None, gateway: Gateway | None = None) -> Loop:
        """A new controller over the same outside world: it remembers what the record holds. With a ledger or
        a gateway of another kind where one is given."""
        ports = Ports(
            self.clock,
            self.metrics,
            {"edge": gateway or JournaledGateway(self.gateway, self.journal)},
            self.orchestrator,
            ledger or self.ledger,
            self.lease,
        )
        return Loop("demo", ports, "1.0", lambda: self.stopping)

    def cycle(self, kind: CycleKind = CycleKind.WEIGHTS, after_s: float = 5.0) -> Report:
        """One more cycle, `after_s` later, with a journal of its own."""
        self.clock.pass_s(after_s)
        self.journal.clear()
        return self.loop.cycle(kind, self.rules)

    def settled(self, cycles: int = 3) -> World:
        """The same world once the gateway has the levels that the loop wants."""
        for _ in range(cycles):
            self.cycle()
        self.gateway.sent.clear()
        return self

    def server(self, number: int) -> ServerView:
        """The n-th instance as the gateway has it, from 1."""
        return self.server_of(self.members[number - 1])

    def server_of(self, member: Instance) -> ServerView:
        """An instance as the gateway has it."""
        pools = self.gateway.servers.values()
        return next(servers[member.instance_id] for servers in pools if member.instance_id in servers)

    def meddle(self, number: int, **changes: object) -> None:
        """Somebody else's hand at the gateway."""
        self.gateway.put(CHAT, replace(self.server(number), **changes))  # type: ignore[arg-type]

    def levels(self, kind: ActionKind) -> dict[InstanceId | None, int]:
        """What was sent of one kind."""
        return {action.instance: action.level for _, action in self.gateway.sent if action.kind is kind}

    def states(self) -> dict[ActionState, int]:
        """How many recorded actions stand in which state."""
        found = [state for state, _ in self.ledger.states.values()]
        return {state: found.count(state) for state in set(found)}

    def _seen(self, kind: CycleKind, policies: Policies, now: float) -> MetricsAnswer:
        return answer(
            steady_pool(members=self.members, running=self.running, speed=self.speed, kind=kind, now=now)
        )
