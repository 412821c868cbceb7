"""Reading the record: typed answers for the command line, the pages and replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Engine, func, select

from controlplane import forms
from controlplane.adapters.sql import listing, loans, pagelist
from controlplane.adapters.sql.actions import action_id, action_of
from controlplane.adapters.sql.codec import Damaged, unpack
from controlplane.adapters.sql.engine import reading
from controlplane.adapters.sql.listing import Filter, Listed
from controlplane.adapters.sql.loans import Balance, Booked, Lent
from controlplane.adapters.sql.pagelist import Page, PageFilter, PageId
from controlplane.adapters.sql.tables import (
    ActionEventRow,
    ActionRow,
    CycleRow,
    DecisionRow,
    FrameRow,
    PolicyVersionRow,
    ReasonCodeRow,
    RunRow,
)
from controlplane.domain.forecast import Forecast
from controlplane.domain.ids import ActionId, CycleId, DecisionId
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action, ActionKind, ActionState, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.state import State
from controlplane.ports import Frame

__all__ = [
    "Balance",
    "Booked",
    "Done",
    "Filter",
    "Lent",
    "Listed",
    "Page",
    "PageFilter",
    "PageId",
    "Reader",
    "Stored",
]


@dataclass(frozen=True, slots=True)
class Done:
    """One action, with every state it went through: (epoch seconds, state, detail)."""

    id: ActionId
    action: Action
    state: ActionState
    detail: str
    events: tuple[tuple[float, ActionState, str], ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """One cycle as it was recorded. The plan is not in it: only its hash is."""

    cycle: CycleId
    at: float
    run_id: str
    code_version: str
    frame: Frame
    next_state: State
    plan_hash: str


class Reader:
    """Reads one database. Raises Unavailable, and `codec.Damaged` for a row that can't be read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Close every connection; a question asked later opens one anew."""
        self._engine.dispose()

    def runs(self) -> Sequence[tuple[str, str, str, float]]:
        """(cluster, run id, source, started at), newest first."""
        with reading(self._engine) as session:
            rows = session.scalars(select(RunRow).order_by(RunRow.started_at.desc()))
            return [(row.cluster, row.run_id, str(row.source), row.started_at) for row in rows]

    def decisions(self, chosen: Filter, limit: int, before: DecisionId | None = None) -> Sequence[Listed]:
        """Every decision, newest first. `before`: the last one of the page before."""
        with reading(self._engine) as session:
            return listing.decisions(session, chosen, limit, before)

    def streaks(self, chosen: Filter, limit: int, before: DecisionId | None = None) -> Sequence[Listed]:
        """Decisions with repeats folded, by when each streak began, newest first. `before`: the last
        one of the page before, or any other of its streak, which may have grown since."""
        with reading(self._engine) as session:
            return listing.streaks(session, chosen, limit, before)

    def decision(self, id_: DecisionId) -> Listed | None:
        """One decision; None where there is none of that id."""
        with reading(self._engine) as session:
            return listing.one(session, id_)

    def pages(self, chosen: PageFilter, limit: int, before: PageId | None = None) -> Sequence[Page]:
        """Alerts that somebody was told of, newest first. `before`: the last one of the page before."""
        with reading(self._engine) as session:
            return pagelist.pages(session, chosen, limit, before)

    def page(self, id_: PageId) -> Page | None:
        """One of them; None where there is none of that id."""
        with reading(self._engine) as session:
            return pagelist.one(session, id_)

    def around(self, page: Page) -> Sequence[Listed]:
        """Decisions about its pool that changed something or were held, from five minutes before it
        began until five after it ended (until now, while it fires), oldest first, repeats folded."""
        with reading(self._engine) as session:
            return pagelist.around(session, page)

    def nearest(self, id_: CycleId) -> CycleId | None:
        """The cycle of the same cluster and kind whose number is nearest; None where there is none."""
        query = (
            select(CycleRow.seq)
            .where(CycleRow.cluster == id_.cluster, CycleRow.kind == id_.kind)
            .order_by(func.abs(CycleRow.seq - id_.seq))
            .limit(1)
        )
        with reading(self._engine) as session:
            seq = session.scalar(query)
        return None if seq is None else CycleId(id_.cluster, id_.kind, seq)

    def pools(self, id_: CycleId) -> Sequence[str]:
        """The pools that a cycle decided for."""
        with reading(self._engine) as session:
            return [row.id.pool for row in listing.of(session, id_)]

    def actions(self, id_: DecisionId) -> Sequence[Done]:
        """A decision's actions in order, each with its history."""
        cycle = id_.cycle
        query = (
            select(ActionRow, ReasonCodeRow.code)
            .join(ReasonCodeRow, ActionRow.code_id == ReasonCodeRow.code_id)
            .where(
                ActionRow.cluster == cycle.cluster,
                ActionRow.kind == cycle.kind,
                ActionRow.seq == cycle.seq,
                ActionRow.pool == id_.pool,
            )
            .order_by(ActionRow.ordinal)
        )
        history = (
            select(ActionEventRow)
            .where(
                ActionEventRow.cluster == cycle.cluster,
                ActionEventRow.kind == cycle.kind,
                ActionEventRow.seq == cycle.seq,
                ActionEventRow.pool == id_.pool,
            )
            .order_by(ActionEventRow.ordinal, ActionEventRow.n)
        )
        with reading(self._engine) as session:
            events = session.scalars(history).all()
            return [_done(row, code, events) for row, code in session.execute(query)]

    def cycle(self, id_: CycleId) -> Stored | None:
        """All that a cycle was given and the state after it; None where there is none of that id.

        Raises Damaged where its inputs are no longer kept.
        """
        with reading(self._engine) as session:
            row = session.get(CycleRow, (id_.cluster, id_.kind, id_.seq))
            if row is None:
                return None
            frame = session.get(FrameRow, (id_.cluster, id_.kind, id_.seq))
            policies = session.get(PolicyVersionRow, (row.cluster, row.policies_hash))
            if frame is None or policies is None:
                raise Damaged(f"{id_}: its inputs are no longer kept")
            return _stored(row, frame, unpack(Policies, policies.body, policies.codec, f"policies of {id_}"))

    def cycle_ids(self, run_id: str | None = None) -> Sequence[CycleId]:
        """All cycles in the order in which they ran, of one run or of all."""
        query = select(CycleRow.cluster, CycleRow.kind, CycleRow.seq).order_by(
            CycleRow.started_at, CycleRow.seq
        )
        if run_id is not None:
            query = query.where(CycleRow.run_id == run_id)
        with reading(self._engine) as session:
            return [CycleId(cluster, kind, seq) for cluster, kind, seq in session.execute(query)]

    def cycles(self, run_id: str | None = None) -> Iterator[Stored]:
        """All cycles in the order in which they ran, one at a time."""
        for id_ in self.cycle_ids(run_id):
            stored = self.cycle(id_)
            if stored is not None:
                yield stored

    def plan(self, id_: CycleId, stored: Stored) -> Plan:
        """The plan of a cycle, put together from its decisions. Raises Damaged where it is not the
        one that was recorded: somebody changed a row."""
        with reading(self._engine) as session:
            rows, entries = listing.of(session, id_), loans.entries_of(session, id_)
        decisions = {row.id.pool: row.decision for row in rows}
        plan = Plan(id_.kind, stored.frame.policies.version, decisions, entries)
        if stored.plan_hash not in {forms.content_hash(plan), forms.older_hash(plan)}:
            raise Damaged(f"{id_}: its decisions are not those that were recorded (the hash differs)")
        return plan

    def loans(
        self, limit: int | None = None, *, open_only: bool = False, pool: str | None = None
    ) -> Sequence[Lent]:
        """Loans, the newest first; of all runs, or those of a pool as borrower or lender."""
        with reading(self._engine) as session:
            return loans.listed(session, limit, open_only=open_only, pool=pool)

    def booked(self, limit: int, account: str | None = None) -> Sequence[Booked]:
        """Entries of the ledger of loans, the newest first."""
        with reading(self._engine) as session:
            return loans.booked(session, limit, account)

    def balance(self) -> Balance:
        """The whole ledger of loans, summed up."""
        with reading(self._engine) as session:
            return loans.balance(session)

    def counts(self, run_id: str | None = None) -> dict[str, int]:
        """Decisions by outcome, and actions by state as `action_<state>`. Reads every row."""
        with reading(self._engine) as session:
            outcomes = session.execute(
                select(DecisionRow.outcome, func.count())
                .where(*_of_run(DecisionRow, run_id))
                .group_by(DecisionRow.outcome)
            )
            states = session.execute(
                select(ActionRow.state, func.count())
                .where(*_of_run(ActionRow, run_id))
                .group_by(ActionRow.state)
            )
            counted = {str(outcome): count for outcome, count in outcomes}
            return counted | {f"action_{state}": count for state, count in states}

    def applied(self) -> dict[ActionKind, int]:
        """How many actions of each kind took effect; of all runs."""
        query = (
            select(ActionRow.action_kind, func.count())
            .where(ActionRow.state == ActionState.APPLIED)
            .group_by(ActionRow.action_kind)
        )
        with reading(self._engine) as session:
            return {kind: count for kind, count in session.execute(query).tuples()}  # noqa: C416 - rows


def _done(row: ActionRow, code: str, events: Sequence[ActionEventRow]) -> Done:
    mine = tuple((each.at, each.state, each.reason) for each in events if each.ordinal == row.ordinal)
    return Done(action_id(row), action_of(row, code), row.state, row.reason, mine)


def _stored(row: CycleRow, inputs: FrameRow, policies: Policies) -> Stored:
    id_ = CycleId(row.cluster, row.kind, row.seq)
    frame = Frame(
        observation=unpack(Observation, inputs.observation, inputs.codec, f"observation of {id_}"),
        policies=policies,
        state=unpack(State, inputs.state, inputs.codec, f"state of {id_}"),
        forecast=unpack(Forecast, inputs.forecast, inputs.codec, f"forecast of {id_}"),
    )
    after = unpack(State, inputs.next_state, inputs.codec, f"next state of {id_}")
    return Stored(id_, row.started_at, row.run_id, row.code_version, frame, after, row.plan_hash)


def _of_run(table: type[DecisionRow | ActionRow], run_id: str | None) -> list[ColumnElement[bool]]:
    return [] if run_id is None else [table.run_id == run_id]
