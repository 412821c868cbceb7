"""A recorded story: real decisions over a few cycles, in a database of its own."""

from __future__ import annotations

from dataclasses import replace

from controlplane.adapters.sql.open import Record
from controlplane.domain.decide import decide
from controlplane.domain.ids import ActionId, CycleId, CycleKind, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Missing
from controlplane.domain.state import State
from controlplane.ports import CycleRecord, Frame
from tests.builders import NO_FORECAST, NOW, gateway, instances, policies, server, steady_pool

POOL = PoolName("chat-8b")


def observed(kind: CycleKind, at: float, limit: int = 8) -> Observation:
    """A healthy pool of four whose gateway stands at `limit`, which the first weights cycle mends."""
    view = gateway([server(each, limit=limit) for each in instances(4)], now=at)
    return replace(steady_pool(4, kind=kind, now=at), gateways={"edge": view})


def cycle_record(
    seq: int, seen: Observation, state: State | None = None, rules: Policies | None = None
) -> CycleRecord:
    """One decided cycle, ready to be recorded."""
    frame = Frame(seen, rules or policies(), state or State(), NO_FORECAST)
    plan, after = decide(frame.observation, frame.policies, frame.state, frame.forecast)
    return CycleRecord(CycleId("demo", seen.kind, seq), seen.now, frame, plan, after, "0.1.0", 0.01)


def write(record: Record, cycles: int = 6) -> list[list[tuple[ActionId, Action]]]:
    """Weights and capacity in turn, two seconds apart, each from the state before it."""
    state, runnable = State(), []
    for number in range(cycles):
        kind = CycleKind.WEIGHTS if number % 2 == 0 else CycleKind.CAPACITY
        limit = 8 if number == 0 else 40
        told = cycle_record(record.ledger.next_seq(kind), observed(kind, NOW + 2.0 * number, limit), state)
        runnable.append(list(record.ledger.record(told)))
        state = told.next_state
    return runnable


__all__ = ["POOL", "Missing", "cycle_record", "observed", "write"]
