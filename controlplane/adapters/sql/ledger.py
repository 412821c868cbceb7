"""The ledger: what was seen, decided and done. Every method is one short transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine, and_, insert, or_, select, update

from controlplane.adapters.sql import actions, loans, people, streaks
from controlplane.adapters.sql.codec import CODEC, pack, unpack
from controlplane.adapters.sql.engine import WriteSession, reading, writing
from controlplane.adapters.sql.rows import (
    codes_in,
    cycle_values,
    decision_values,
    frame_values,
    policies_hash,
    policy_values,
)
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import (
    ActionRow,
    CycleRow,
    DecisionRow,
    FrameRow,
    HoldRow,
    LeaseRow,
    MemoryRow,
    PolicyVersionRow,
    ReasonCodeRow,
    SequenceRow,
)
from controlplane.domain.ids import ActionId, CycleId, CycleKind
from controlplane.domain.lifecycle import UNSETTLED
from controlplane.domain.loans import Loan
from controlplane.domain.observation import Hold
from controlplane.domain.plan import Action, ActionState
from controlplane.domain.policy import Mode
from controlplane.domain.state import State
from controlplane.ports import Conflict, CycleRecord

LEADER = "controller"
"""The lease that a controller holds."""


class SqlLedger:
    """The ledger port for one run."""

    def __init__(self, engine: Engine, run: Run) -> None:
        self._engine = engine
        self._run = run

    def next_seq(self, kind: CycleKind) -> int:
        """A number that no cycle of this kind has had, nor will: a gap does no harm, a repetition
        would, also after old cycles were removed."""
        mine = and_(SequenceRow.cluster == self._run.cluster, SequenceRow.kind == kind)
        counted = update(SequenceRow).where(mine).values(last_seq=SequenceRow.last_seq + 1)
        with writing(self._engine) as session:
            found = session.scalar(counted.returning(SequenceRow.last_seq))  # one statement: no two get one
            if found is None:
                session.add(SequenceRow(cluster=self._run.cluster, kind=kind, last_seq=1))
            return found or 1

    def last_state(self) -> State | None:
        """The state after the cycle recorded last, of either kind; None before the first."""
        with reading(self._engine) as session:
            row = session.get(MemoryRow, (self._run.cluster, self._run.scope))
            if row is None:
                return None
            return unpack(
                State, row.state, row.codec, f"memory after {CycleId(row.cluster, row.kind, row.seq)}"
            )

    def record(self, cycle: CycleRecord) -> Sequence[tuple[ActionId, Action]]:
        """Frame, plan, next state and actions, in one transaction. Answers what may be carried out.

        Raises Conflict for a cycle that is recorded already, or where another controller leads.
        """
        if cycle.cycle.cluster != self._run.cluster:
            raise Conflict(f"{cycle.cycle} is none of cluster {self._run.cluster}")
        chosen = actions.planned(cycle.cycle, cycle.plan)
        with writing(self._engine) as session:
            self._require_lease(session)
            self._inputs(session, cycle)
            codes = _code_ids(session, codes_in(cycle.plan))
            self._decisions(session, cycle, codes)
            actions.supersede(session, self._run, chosen, cycle.started_at)
            actions.add(session, self._run, chosen, cycle.started_at, codes)
            loans.enter(session, self._run, cycle, codes)
        return [(id_, action) for id_, action, mode in chosen if mode is Mode.AUTO]

    def settle(self, outcomes: Mapping[ActionId, tuple[ActionState, str]], at: float) -> None:
        """Write outcomes. The same outcome twice is no matter; one that may not follow the action's
        state is a Conflict, raised after all others were committed."""
        refused = []
        with writing(self._engine) as session:
            for id_, (state, reason) in outcomes.items():
                if not actions.move(session, id_, state, reason, at):
                    found = actions.state_of(session, id_)
                    if found is not state:
                        refused.append(f"{id_} is {found or 'not on record'}, and cannot become {state}")
        if refused:
            raise Conflict("; ".join(refused))

    def unknown_actions(self) -> Sequence[tuple[ActionId, Action]]:
        """Actions left APPLYING or UNKNOWN, oldest first."""
        with reading(self._engine) as session:
            rows = session.execute(
                select(ActionRow, ReasonCodeRow.code)
                .join(ReasonCodeRow, ActionRow.code_id == ReasonCodeRow.code_id)
                .where(self._run.shares(ActionRow), ActionRow.state.in_(UNSETTLED))
                .order_by(ActionRow.changed_at, ActionRow.seq, ActionRow.pool, ActionRow.ordinal)
            )
            return [(actions.action_id(row), actions.action_of(row, code)) for row, code in rows]

    def holds(self, now: float) -> Sequence[Hold]:
        """What people say at `now`, holds and pins, oldest first."""
        with reading(self._engine) as session:
            rows = session.scalars(
                select(HoldRow)
                .where(
                    HoldRow.cluster == self._run.cluster,
                    HoldRow.lifted_at.is_(None),
                    or_(HoldRow.until.is_(None), HoldRow.until > now),
                )
                .order_by(HoldRow.since, HoldRow.hold_id)
            )
            return [people.hold_of(row) for row in rows]

    def loans(self) -> Sequence[Loan]:
        """Open loans, in the order of their instances."""
        with reading(self._engine) as session:
            return loans.standing(session, self._run)

    def _require_lease(self, session: WriteSession) -> None:
        """A controller whose place another one took writes nothing more."""
        if not self._run.lease_token:
            return
        row = session.get(LeaseRow, (self._run.cluster, LEADER))
        if row is None or row.token != self._run.lease_token:
            raise Conflict(f"this controller no longer leads: {row.holder if row else 'nobody'} does")

    def _inputs(self, session: WriteSession, cycle: CycleRecord) -> None:
        """Rows go in one table after another, parents first, as foreign keys want it."""
        if session.get(PolicyVersionRow, (self._run.cluster, policies_hash(cycle))) is None:
            session.execute(insert(PolicyVersionRow).values(policy_values(cycle)))
        session.execute(insert(CycleRow).values(cycle_values(self._run, cycle)))
        session.execute(insert(FrameRow).values(frame_values(cycle)))
        session.merge(
            MemoryRow(
                cluster=self._run.cluster,
                scope=self._run.scope,
                kind=cycle.cycle.kind,
                seq=cycle.cycle.seq,
                codec=CODEC,
                state=pack(cycle.next_state),
            )
        )

    def _decisions(self, session: WriteSession, cycle: CycleRecord, codes: Mapping[str, int]) -> None:
        rows = []
        for pool in cycle.plan.decisions:
            streak = streaks.enter(session, self._run, cycle, pool, codes)
            rows.append(decision_values(self._run, cycle, pool, codes, streak))
        if rows:
            session.execute(insert(DecisionRow), rows)


def _code_ids(session: WriteSession, codes: set[str]) -> dict[str, int]:
    query = select(ReasonCodeRow.code, ReasonCodeRow.code_id).where(ReasonCodeRow.code.in_(codes))
    known = {code: id_ for code, id_ in session.execute(query)}  # noqa: C416 - rows are no pairs
    for code in sorted(codes - set(known)):
        row = ReasonCodeRow(code=code)
        session.add(row)
        session.flush()
        known[code] = row.code_id
    return known
