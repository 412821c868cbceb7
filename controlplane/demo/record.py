"""What a demonstration reads of the record: cycles as they were stored, read only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane import forms
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import CycleId, CycleKind
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Plan
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Missing
from controlplane.domain.state import State


@dataclass(frozen=True, slots=True)
class Told:
    """One stored cycle. `started_at` epoch seconds; `row` orders all of them."""

    row: int
    cycle: CycleId
    started_at: float
    plan: Plan
    inventory: Inventory | Missing


@dataclass(frozen=True, slots=True)
class Given:
    """What the newest cycle of a kind was given."""

    cycle: CycleId
    observation: Observation
    policies: Policies
    state: State


class RecordFile:
    """The database of one demonstration. Before it is there, it is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def told(self, after: int = 0) -> Iterator[Told]:
        """The cycles with a row above `after`, in order."""
        with self._open() as db:
            for row, kind, seq, at, plan, obs in db.execute(
                "select id, kind, seq, started_at, plan, observation from cycles where id > ? order by id", (after,)
            ):
                yield Told(row, CycleId("demo", CycleKind(kind), seq), at, forms.from_json(Plan, plan), forms.from_json(Observation, obs).inventory)

    def given(self, kind: CycleKind) -> Given | None:
        """The newest cycle of a kind."""
        with self._open() as db:
            for seq, obs, pol, state in db.execute("select seq, observation, policies, state from cycles where kind=? order by id desc limit 1", (str(kind),)):
                return Given(CycleId("demo", kind, seq), forms.from_json(Observation, obs), forms.from_json(Policies, pol), forms.from_json(State, state))
        return None

    def pushed(self) -> int:
        """How many levels the gateways were really given."""
        with self._open() as db:
            return db.execute("select count(*) from actions where state='applied' and kind != 'set_instances'").fetchone()[0]

    @contextmanager
    def _open(self):
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            yield db
