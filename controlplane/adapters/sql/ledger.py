"""The ledger: what was seen, decided and done. Every method is one short transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.orm import Session

from controlplane import forms
from controlplane.adapters.sql.codec import CODEC, micros, pack, seconds, unpack
from controlplane.adapters.sql.engine import reading, writing
from controlplane.adapters.sql.tables import (
    ActionEventRow,
    ActionRow,
    CycleRow,
    DecisionRow,
    HoldRow,
    PolicyVersionRow,
    ReasonCodeRow,
)
from controlplane.domain.explanation import Explanation
from controlplane.domain.ids import ActionId, CycleId, CycleKind, DecisionId, InstanceId, PoolName
from controlplane.domain.observation import Hold
from controlplane.domain.plan import Action, ActionKind, ActionState, Decision, Plan
from controlplane.domain.policy import Mode, Policies
from controlplane.domain.state import State
from controlplane.ports import CycleRecord

FIRST_STATE: Mapping[Mode, ActionState] = {
    Mode.OBSERVE: ActionState.PROPOSED,
    Mode.RECOMMEND: ActionState.AWAITING,
    Mode.AUTO: ActionState.APPLYING,
}
"""Where an action's life begins, by how far its kind may go without a person."""

UNSETTLED = (ActionState.APPLYING, ActionState.UNKNOWN)
"""Actions whose effect is not known yet: the only ones whose outcome may be written."""


class SqlLedger:
    """The ledger port for one cluster and one run. `lease_token` is stamped on every cycle."""

    def __init__(self, engine: Engine, cluster: str, run_id: str, lease_token: int = 0) -> None:
        self._engine = engine
        self._cluster = cluster
        self._run_id = run_id
        self._lease_token = lease_token

    def next_seq(self, kind: CycleKind) -> int:
        """One more than the last recorded cycle of this kind, over all runs."""
        with reading(self._engine) as session:
            last = session.scalar(
                select(func.max(CycleRow.seq)).where(CycleRow.cluster == self._cluster, CycleRow.kind == kind)
            )
        return (last or 0) + 1

    def last_state(self) -> State | None:
        """The state after the newest cycle of either kind; None before the first."""
        with reading(self._engine) as session:
            row = session.scalars(
                select(CycleRow)
                .where(CycleRow.cluster == self._cluster)
                .order_by(CycleRow.started_at.desc(), CycleRow.seq.desc())
                .limit(1)
            ).first()
            return None if row is None else unpack(State, row.state_after, row.codec, f"state of {_id(row)}")

    def record(self, cycle: CycleRecord) -> Sequence[tuple[ActionId, Action]]:
        """Frame, plan, next state and actions, in one transaction.

        An older action whose effect is not known yet, and whose target this plan sets anew, is
        superseded: what it left behind is what this plan was made from.
        """
        with writing(self._engine) as session:
            self._policies(session, cycle)
            session.add(self._cycle(cycle))
            session.flush()
            codes = _reason_ids(session, _codes(cycle.plan))
            session.add_all(
                _decision(cycle, pool, each, codes) for pool, each in cycle.plan.decisions.items()
            )
            session.flush()
            runnable = []
            for id_, action, mode in _actions(cycle.cycle, cycle.plan):
                self._supersede(session, id_, action, cycle.started_at)
                self._add(session, id_, action, FIRST_STATE[mode], codes[action.code], cycle.started_at)
                if mode is Mode.AUTO:
                    runnable.append((id_, action))
        return runnable

    def settle(self, outcomes: Mapping[ActionId, tuple[ActionState, str]], at: float) -> None:
        """Write outcomes of actions that are not settled yet; settled ones stay as they are."""
        with writing(self._engine) as session:
            for id_, (state, detail) in outcomes.items():
                self._change(session, id_, state, detail, at)

    def unknown_actions(self) -> Sequence[tuple[ActionId, Action]]:
        """Actions left APPLYING or UNKNOWN, oldest first."""
        with reading(self._engine) as session:
            rows = session.execute(
                select(ActionRow, ReasonCodeRow.code)
                .join(ReasonCodeRow, ActionRow.reason_id == ReasonCodeRow.id)
                .where(ActionRow.cluster == self._cluster, ActionRow.state.in_(UNSETTLED))
                .order_by(ActionRow.changed_at, ActionRow.seq, ActionRow.ordinal)
            )
            return [(action_id(row), action_of(row, code)) for row, code in rows]

    def holds(self, now: float) -> Sequence[Hold]:
        """People's holds in force at `now`, oldest first."""
        with reading(self._engine) as session:
            rows = session.scalars(
                select(HoldRow)
                .where(
                    HoldRow.cluster == self._cluster,
                    HoldRow.lifted_at.is_(None),
                    or_(HoldRow.until.is_(None), HoldRow.until > micros(now)),
                )
                .order_by(HoldRow.since)
            )
            return [_hold(row) for row in rows]

    def _policies(self, session: Session, cycle: CycleRecord) -> None:
        policies = cycle.frame.policies
        key = (self._cluster, policies.version.content_hash)
        if session.get(PolicyVersionRow, key) is None:
            session.add(_policy_row(self._cluster, policies, cycle.started_at))
            session.flush()  # before the cycle that refers to it

    def _cycle(self, record: CycleRecord) -> CycleRow:
        frame = record.frame
        return CycleRow(
            cluster=self._cluster,
            kind=record.cycle.kind,
            seq=record.cycle.seq,
            run_id=self._run_id,
            started_at=micros(record.started_at),
            duration_us=micros(record.duration_s),
            code_version=record.code_version,
            lease_token=self._lease_token,
            codec=CODEC,
            policies_hash=frame.policies.version.content_hash,
            plan_hash=forms.content_hash(record.plan),
            observation=pack(frame.observation),
            state_before=pack(frame.state),
            state_after=pack(record.next_state),
            forecast=pack(frame.forecast),
        )

    def _supersede(self, session: Session, id_: ActionId, action: Action, at: float) -> None:
        older = session.scalars(
            select(ActionRow).where(
                ActionRow.cluster == self._cluster,
                ActionRow.state.in_(UNSETTLED),
                ActionRow.pool == action.pool,
                ActionRow.gateway == action.gateway,
                ActionRow.instance.is_(None)
                if action.instance is None
                else ActionRow.instance == action.instance,
                ActionRow.action == action.kind,
            )
        ).all()
        for row in older:
            self._change(session, action_id(row), ActionState.SUPERSEDED, f"by {id_}", at)

    def _add(  # noqa: PLR0913, PLR0917  # one argument a column that is not the action's own
        self, session: Session, id_: ActionId, action: Action, state: ActionState, reason: int, at: float
    ) -> None:
        session.add(
            ActionRow(
                **_key(id_),
                action=action.kind,
                gateway=action.gateway,
                instance=action.instance,
                level=action.level,
                seen=action.seen,
                reason_id=reason,
                state=state,
                detail="",
                changed_at=micros(at),
            )
        )
        session.add(ActionEventRow(**_key(id_), at=micros(at), state=state, detail=""))

    @staticmethod
    def _change(session: Session, id_: ActionId, state: ActionState, detail: str, at: float) -> None:
        """Compare and set: only what is not settled may change."""
        key = _key(id_)
        where = [getattr(ActionRow, column) == value for column, value in key.items()]
        changed = session.execute(
            update(ActionRow)
            .where(*where, ActionRow.state.in_(UNSETTLED))
            .values(state=state, detail=detail, changed_at=micros(at))
            .returning(ActionRow.ordinal)
        ).all()
        if changed:
            session.add(ActionEventRow(**key, at=micros(at), state=state, detail=detail))


def action_id(row: ActionRow) -> ActionId:
    """An action row's id."""
    cycle = CycleId(row.cluster, CycleKind(row.kind), row.seq)
    return ActionId(DecisionId(cycle, PoolName(row.pool)), row.ordinal)


def action_of(row: ActionRow, code: str) -> Action:
    """An action row as the domain's value."""
    return Action(
        kind=ActionKind(row.action),
        pool=PoolName(row.pool),
        gateway=row.gateway,
        instance=None if row.instance is None else InstanceId(row.instance),
        level=row.level,
        seen=row.seen,
        code=code,
    )


def _id(row: CycleRow) -> CycleId:
    return CycleId(row.cluster, CycleKind(row.kind), row.seq)


def _key(id_: ActionId) -> dict[str, Any]:
    cycle = id_.decision.cycle
    return {
        "cluster": cycle.cluster,
        "kind": str(cycle.kind),
        "seq": cycle.seq,
        "pool": id_.decision.pool,
        "ordinal": id_.ordinal,
    }


def _policy_row(cluster: str, policies: Policies, at: float) -> PolicyVersionRow:
    return PolicyVersionRow(
        cluster=cluster,
        content_hash=policies.version.content_hash,
        git_commit=policies.version.commit,
        codec=CODEC,
        content=pack(policies),
        first_seen_at=micros(at),
    )


def _codes(plan: Plan) -> set[str]:
    explained = {decision.explanation.code for decision in plan.decisions.values()}
    return explained | {action.code for each in plan.decisions.values() for action in each.actions}


def _reason_ids(session: Session, codes: set[str]) -> dict[str, int]:
    query = select(ReasonCodeRow.code, ReasonCodeRow.id).where(ReasonCodeRow.code.in_(codes))
    known = dict(session.execute(query).all())
    for code in sorted(codes - set(known)):
        row = ReasonCodeRow(code=code)
        session.add(row)
        session.flush()
        known[code] = row.id
    return known


def _decision(
    cycle: CycleRecord, pool: PoolName, decision: Decision, codes: Mapping[str, int]
) -> DecisionRow:
    explanation = decision.explanation
    return DecisionRow(
        cluster=cycle.cycle.cluster,
        kind=cycle.cycle.kind,
        seq=cycle.cycle.seq,
        pool=pool,
        decided_at=micros(cycle.started_at),
        mode=decision.mode,
        outcome=decision.outcome,
        reason_id=codes[explanation.code],
        size_before=explanation.before,
        size_after=explanation.after,
        fingerprint=fingerprint(decision),
        decision=pack(decision),
    )


def fingerprint(decision: Decision) -> str:
    """What makes two decisions "the same again" for a list: outcome, reason, sizes and actions,
    without the figures that move with every sample."""
    explanation: Explanation = decision.explanation
    parts = [decision.outcome, explanation.code, str(explanation.before), str(explanation.after)]
    parts += [f"{each.kind}:{each.gateway}:{each.instance}:{each.level}" for each in decision.actions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _actions(cycle: CycleId, plan: Plan) -> list[tuple[ActionId, Action, Mode]]:
    return [
        (ActionId(DecisionId(cycle, pool), ordinal), action, decision.mode)
        for pool, decision in plan.decisions.items()
        for ordinal, action in enumerate(decision.actions)
    ]


def _hold(row: HoldRow) -> Hold:
    return Hold(
        pool=None if row.pool is None else PoolName(row.pool),
        author=row.author,
        reason=row.reason,
        since=seconds(row.since),
        until=None if row.until is None else seconds(row.until),
    )
