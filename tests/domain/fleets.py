"""Fleets for tests of moves: one node of chat, and a buffer node on which offline work runs and chat sleeps.

`Yard` plays the orchestrator in the plainest way: an order is carried out when `settle` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controlplane.domain.decide import decide
from controlplane.domain.fleet import Instance, Inventory, Life, Node, Phase
from controlplane.domain.gateway import BackendView, GatewayView, ServerState, ServerView
from controlplane.domain.ids import CycleKind, InstanceId, NodeId, PoolName
from controlplane.domain.loans import Entry, Loan
from controlplane.domain.observation import Hold, Observation, Reach
from controlplane.domain.plan import Action, ActionKind, Plan
from controlplane.domain.policy import BufferPolicy, CapacityPolicy, Mode, Policies, PoolKind, PoolPolicy
from controlplane.domain.readings import PoolSignal, Reading, Signal
from controlplane.domain.state import State
from tests.builders import HAPROXY, NO_FORECAST, NOW, observation, policies, pool_policy, steady_pool

CHAT, BATCH = PoolName("chat-8b"), PoolName("batch-eval")
HOME, SPARE = NodeId("n1"), NodeId("n2")


def chat_policy(**changes: object) -> PoolPolicy:
    """Chat moves by itself, at once both ways."""
    capacity = CapacityPolicy(minimum=2, maximum=8, shrink_cooldown_s=0.0, stabilise_s=0.0, shrink_step=1.0)
    return pool_policy(
        "chat-8b", **{"capacity": capacity, "capacity_mode": Mode.AUTO, "priority": 80, **changes}
    )


def batch_policy(**changes: object) -> PoolPolicy:
    """Offline work that wants four GPUs at all times and has the lowest priority."""
    base: dict[str, object] = {
        "capacity": CapacityPolicy(minimum=4, maximum=4),
        "capacity_mode": Mode.AUTO,
        "kind": PoolKind.OFFLINE,
        "priority": 10,
    }
    return pool_policy("batch-eval", **{**base, **changes})


def rules(*pools: PoolPolicy, reserve: int = 0, reserve_priority: int = 100) -> Policies:
    """Both pools' policies, or those given."""
    chosen = pools or (chat_policy(), batch_policy())
    return replace(policies(*chosen), buffer=BufferPolicy(reserve, reserve_priority))


def member(slot: str, pool: PoolName, node: NodeId, gpu: int, phase: Phase = Phase.SERVING) -> Instance:
    """One instance of ours on one GPU."""
    return Instance(
        instance_id=InstanceId(f"demo/{slot}@s9k2x1"),
        pool=pool,
        node=node,
        tp=1,
        phase=phase,
        address=f"127.0.0.1:{9000 + gpu}",
        started_at=NOW - 3600.0,
        ready_at=NOW - 3540.0 if phase is Phase.SERVING else None,
        gpus=(gpu,),
        managed=True,
    )


@dataclass(slots=True)
class Yard:
    """A fleet that does what it is told. `deaf` accepts orders and does nothing."""

    now: float = NOW
    nodes: tuple[Node, ...] = (Node(HOME, "H100", 8, CHAT), Node(SPARE, "H100", 8))
    instances: dict[InstanceId, Instance] = field(default_factory=dict)
    state: State = field(default_factory=State)
    loans: dict[InstanceId, Loan] = field(default_factory=dict)
    in_flight: dict[InstanceId, int] = field(default_factory=dict)
    at_work: dict[InstanceId, int] = field(default_factory=dict)
    completed: dict[InstanceId, int] = field(default_factory=dict)
    closed: set[InstanceId] = field(default_factory=set)
    running: dict[PoolName, float] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)
    policies: Policies = field(default_factory=rules)
    deaf: bool = False
    told: list[Action] = field(default_factory=list)

    def cycle(self, kind: CycleKind = CycleKind.CAPACITY, pass_s: float = 2.0) -> Plan:
        """One decision, recorded; its orders stand in `told` until they are carried out."""
        plan, self.state = decide(self.seen(kind), self.policies, self.state, NO_FORECAST)
        self._book(plan.loans)
        self.told = [each for decision in plan.decisions.values() for each in decision.actions]
        self.now += pass_s
        return plan

    def act(self) -> None:
        """Carry out what was told."""
        for each in self.told:
            assert each.instance is not None
            if each.kind is ActionKind.CLOSE:
                self.closed.add(each.instance)
            elif each.kind is ActionKind.OPEN:
                self.closed.discard(each.instance)
            elif each.kind is ActionKind.ENSURE and not self.deaf:
                self._ensure(each)

    def run(self, cycles: int, kind: CycleKind = CycleKind.CAPACITY) -> list[Plan]:
        """Several cycles, each carried out."""
        plans = []
        for _ in range(cycles):
            plans.append(self.cycle(kind))
            self.act()
        return plans

    def phases(self, pool: PoolName) -> list[str]:
        """The pool's phases, sorted."""
        return sorted(each.phase.value for each in self.instances.values() if each.pool == pool)

    def seen(self, kind: CycleKind) -> Observation:
        """The fleet as one cycle sees it."""
        members = sorted(self.instances.values(), key=lambda each: (each.pool, each.instance_id))
        levels = [self._level(each) for each in members]
        parts = steady_pool(running=levels, members=members, kind=kind, now=self.now)
        pools = {each: self._pool(each, kind) for each in self.policies.pools}
        return replace(
            observation(members, {}, {}, kind=kind, now=self.now, world=self.inventory(), holds=self.holds),
            signals=parts.signals,
            pools=pools,
            gateways={"edge": self.gateway()},
            loans=tuple(self.loans[name] for name in sorted(self.loans)),
            reach=Reach.INSTANCES,
        )

    def inventory(self) -> Inventory:
        """What exists."""
        return Inventory(self.now, self.nodes, tuple(self.instances.values()))

    def gateway(self) -> GatewayView:
        """Every instance as the gateway has it."""
        backends = tuple(
            BackendView(pool, 0, 0, 5000, 0, tuple(self._servers(pool))) for pool in self.policies.pools
        )
        return GatewayView("edge", self.now, "1", HAPROXY, backends)

    def _servers(self, pool: PoolName) -> Sequence[ServerView]:
        mine = sorted(each.instance_id for each in self.instances.values() if each.pool == pool)
        return [
            ServerView(
                each,
                ServerState.CLOSED if each in self.closed else ServerState.OPEN,
                100,
                40,
                self.in_flight.get(each, 0),
                self.completed.get(each, 1000),
            )
            for each in mine
        ]

    def _level(self, each: Instance) -> float:
        """What an engine runs: the rest of what it had, once it leaves."""
        if each.phase is not Phase.SERVING:
            return 0.0
        if any(move.instance == each.instance_id and move.to is not Life.AWAKE for move in self.state.moves):
            return float(self.at_work.get(each.instance_id, self.in_flight.get(each.instance_id, 0)))
        return self.running.get(each.pool, 10.0)

    def _pool(self, pool: PoolName, kind: CycleKind) -> Mapping[PoolSignal, Reading]:
        serving = [
            each for each in self.instances.values() if each.pool == pool and each.phase is Phase.SERVING
        ]
        running = [self._level(each) for each in serving]
        parts = steady_pool(running=running, members=serving, pool=pool, kind=kind, now=self.now)
        return parts.pools[pool]

    def _ensure(self, order: Action) -> None:
        assert order.instance is not None
        assert order.place is not None
        life, found = tuple(Life)[order.level], self.instances.get(order.instance)
        if found is None and life is Life.AWAKE:
            slot = order.instance.rpartition("/")[2].partition("@")[0]
            made = member(slot, order.pool, order.place.node, order.place.gpus[0])
            found = replace(made, instance_id=order.instance, ready_at=None, tp=len(order.place.gpus))
            found = replace(found, gpus=order.place.gpus)
        if found is None:
            return
        phase = {Life.AWAKE: Phase.SERVING, Life.ASLEEP: Phase.ASLEEP, Life.GONE: Phase.GONE}[life]
        ready = self.now if phase is Phase.SERVING else None
        self.instances[order.instance] = replace(found, phase=phase, ready_at=ready)

    def _book(self, entries: Sequence[Entry]) -> None:
        for each in entries:
            if each.opens:
                assert each.instance not in self.loans, "opened twice"
                self.loans[each.instance] = Loan(
                    each.instance,
                    each.lender,
                    each.borrower,
                    each.instance,
                    each.node,
                    each.gpus,
                    self.now,
                    each.code,
                )
            else:
                del self.loans[each.instance]


def working_buffer(serving: int = 4, sleepers: int = 4, guests: int = 4) -> Yard:
    """`serving` chat instances at home; in the buffer as many guests at work, and sleepers on their GPUs."""
    members = [member(f"chat-8b-{n:02d}", CHAT, HOME, n - 1) for n in range(1, serving + 1)]
    members += [member(f"batch-eval-{n:02d}", BATCH, SPARE, n - 1) for n in range(1, guests + 1)]
    members += [member(f"chat-8b-s{n:02d}", CHAT, SPARE, n - 1, Phase.ASLEEP) for n in range(1, sleepers + 1)]
    yard = Yard(instances={each.instance_id: each for each in members})
    yard.closed = {each.instance_id for each in members if each.phase is Phase.ASLEEP}
    return yard


__all__ = ["BATCH", "CHAT", "Signal", "Yard", "working_buffer"]
