"""Loans to be recorded: cycles whose plans open and close them."""

from __future__ import annotations

from dataclasses import replace

from controlplane.domain.ids import CycleKind, InstanceId, NodeId, PoolName
from controlplane.domain.loans import BUFFER, Code, Entry
from controlplane.ports import CycleRecord
from tests.adapters.sql.records import made
from tests.builders import NOW

CHAT = PoolName("chat-8b")
SLEEPER = InstanceId("demo/chat-8b-s01@s9k2x1")


def entry(slot: str = "chat-8b-s01", *, opens: bool = True, gpus: int = 1, **changes: object) -> Entry:
    """GPUs of `n2` pass from the buffer to chat, or back."""
    code = Code.SURGE if opens else Code.RETURNED
    base = Entry(opens, BUFFER, CHAT, InstanceId(f"demo/{slot}@s9k2x1"), NodeId("n2"), gpus, code)
    return replace(base, **changes)  # type: ignore[arg-type]


def booking(*entries: Entry, seq: int = 1, at: float = NOW) -> CycleRecord:
    """A capacity cycle whose plan says only this."""
    cycle = made(seq=seq, at=at, kind=CycleKind.CAPACITY)
    return replace(cycle, plan=replace(cycle.plan, loans=entries))
