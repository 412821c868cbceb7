"""Cycles to be recorded: made by hand where only the record matters, decided where replay does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.domain.decide import decide
from controlplane.domain.explanation import Explanation, Step, Vote
from controlplane.domain.ids import CycleId, CycleKind, InstanceId, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action, ActionKind, Decision, Outcome, Plan
from controlplane.domain.policy import Mode, Policies
from controlplane.domain.state import PoolState, State
from controlplane.ports import CycleRecord, Frame
from tests.builders import NO_FORECAST, NOW, gateway, instances, policies, pool_policy, server, steady_pool

VERSION = "0.0.test"
MEMBERS = instances(4)


def cycle_id(seq: int = 1, kind: CycleKind = CycleKind.WEIGHTS, cluster: str = "demo") -> CycleId:
    return CycleId(cluster, kind, seq)


def weight(level: int = 75, slot: str = "chat-8b-01", **changes: object) -> Action:
    """An instance's weight at the gateway `edge`."""
    base = Action(
        kind=ActionKind.SET_WEIGHT,
        pool=PoolName("chat-8b"),
        gateway="edge",
        instance=InstanceId(f"demo/{slot}@s9k2x1"),
        level=level,
        seen=100,
        code="speed_differs",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def answer(
    *actions: Action,
    pool: str = "chat-8b",
    mode: Mode = Mode.AUTO,
    code: str = "speed_differs",
    figure: float | None = None,
) -> Decision:
    """A decision with the given actions; `figure` stands in its explanation and means nothing."""
    outcome = Outcome.CHANGE if actions else Outcome.NOTHING_TO_DO
    explanation = Explanation((Step("made", code, Vote.ABSTAIN),), "made", code, figure, figure)
    return Decision(PoolName(pool), mode, outcome, actions, explanation)


def made(
    *decisions: Decision, seq: int = 1, at: float = NOW, kind: CycleKind = CycleKind.WEIGHTS, mark: int = 0
) -> CycleRecord:
    """A cycle whose plan is what is given. `mark` tells its next state from others'."""
    chosen = policies()
    seen = steady_pool(kind=kind, now=at)
    plan = Plan(kind, chosen.version, {decision.pool: decision for decision in decisions})
    after = State({PoolName("chat-8b"): PoolState(breaches=mark)})
    frame = Frame(seen, chosen, State(), NO_FORECAST)
    return CycleRecord(cycle_id(seq, kind), at, frame, plan, after, VERSION, 0.25)


def slow_instance(now: float = NOW, speed: float = 0.5, kind: CycleKind = CycleKind.WEIGHTS) -> Observation:
    """Four instances of which the last is slow, as one gateway and its engines tell it."""
    return steady_pool(
        running=20.0,
        speed=[1.0, 1.0, 1.0, speed],
        kind=kind,
        now=now,
        members=MEMBERS,
        gateways={"edge": gateway([server(each) for each in MEMBERS], now=now)},
    )


def decided(
    seen: Observation, seq: int = 1, state: State | None = None, chosen: Policies | None = None
) -> CycleRecord:
    """A cycle as the loop would record it."""
    in_force, before = chosen or policies(pool_policy()), state or State()
    plan, after = decide(seen, in_force, before, NO_FORECAST)
    frame = Frame(seen, in_force, before, NO_FORECAST)
    return CycleRecord(cycle_id(seq, seen.kind), seen.now, frame, plan, after, VERSION, 0.25)


def run_of(ledger: SqlLedger, speeds: Sequence[float]) -> Iterable[CycleRecord]:
    """Weight cycles one after another, each from the state after the one before."""
    state = State()
    for step, speed in enumerate(speeds):
        cycle = decided(slow_instance(NOW + 5.0 * step, speed), ledger.next_seq(CycleKind.WEIGHTS), state)
        ledger.record(cycle)
        state = cycle.next_state
        yield cycle
