"""Reading the record: typed answers for the command line, the pages and replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Engine, Select, and_, func, or_, select

from controlplane.adapters.sql.codec import micros, seconds, unpack
from controlplane.adapters.sql.engine import reading
from controlplane.adapters.sql.ledger import action_id, action_of
from controlplane.adapters.sql.tables import (
    ActionEventRow,
    ActionRow,
    CycleRow,
    DecisionRow,
    PolicyVersionRow,
    ReasonCodeRow,
    RunRow,
)
from controlplane.domain.forecast import Forecast
from controlplane.domain.ids import ActionId, CycleId, CycleKind, DecisionId, PoolName
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Action, ActionState, Decision, Outcome, Plan
from controlplane.domain.policy import Mode, Policies
from controlplane.domain.state import State
from controlplane.ports import Frame


@dataclass(frozen=True, slots=True)
class Filter:
    """Which decisions: None means any. `since` and `until` in epoch seconds."""

    pool: str | None = None
    kind: CycleKind | None = None
    outcome: Outcome | None = None
    code: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """One decision of a list. `repeats`: how many times in a row it was the same, itself included,
    the oldest of them `first_at`. Instants in epoch seconds."""

    id: DecisionId
    at: float
    mode: Mode
    outcome: Outcome
    code: str
    decision: Decision
    repeats: int = 1
    first_at: float = 0.0


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
            return [(row.cluster, row.run_id, row.source, seconds(row.started_at)) for row in rows]

    def decisions(
        self, chosen: Filter, limit: int, before: tuple[float, DecisionId] | None = None
    ) -> Sequence[Listed]:
        """Decisions, newest first. `before`: instant and id of the last one of the page before."""
        query = _matching(chosen).order_by(
            DecisionRow.decided_at.desc(), DecisionRow.kind, DecisionRow.seq.desc(), DecisionRow.pool
        )
        if before is not None:
            query = query.where(_after(*before))
        with reading(self._engine) as session:
            return [_listed(row, code, codec) for row, code, codec in session.execute(query.limit(limit))]

    def decision(self, id_: DecisionId) -> Listed | None:
        """One decision; None where there is none of that id."""
        query = _joined().where(
            DecisionRow.cluster == id_.cycle.cluster,
            DecisionRow.kind == id_.cycle.kind,
            DecisionRow.seq == id_.cycle.seq,
            DecisionRow.pool == id_.pool,
        )
        with reading(self._engine) as session:
            found = session.execute(query).first()
            return None if found is None else _listed(*found)

    def actions(self, id_: DecisionId) -> Sequence[Done]:
        """A decision's actions in order, each with its history."""
        cycle = id_.cycle
        query = (
            select(ActionRow, ReasonCodeRow.code)
            .join(ReasonCodeRow, ActionRow.reason_id == ReasonCodeRow.id)
            .where(
                ActionRow.cluster == cycle.cluster,
                ActionRow.kind == cycle.kind,
                ActionRow.seq == cycle.seq,
                ActionRow.pool == id_.pool,
            )
            .order_by(ActionRow.ordinal)
        )
        events = select(ActionEventRow).where(
            ActionEventRow.cluster == cycle.cluster,
            ActionEventRow.kind == cycle.kind,
            ActionEventRow.seq == cycle.seq,
            ActionEventRow.pool == id_.pool,
        )
        with reading(self._engine) as session:
            history: dict[int, list[tuple[float, ActionState, str]]] = {}
            for event in session.scalars(events.order_by(ActionEventRow.id)):
                history.setdefault(event.ordinal, []).append(
                    (seconds(event.at), ActionState(event.state), event.detail)
                )
            return [_done(row, code, history.get(row.ordinal, [])) for row, code in session.execute(query)]

    def cycle(self, id_: CycleId) -> Stored | None:
        """One cycle's frame; None where there is none of that id."""
        with reading(self._engine) as session:
            row = session.get(CycleRow, (id_.cluster, str(id_.kind), id_.seq))
            if row is None:
                return None
            policies = session.get_one(PolicyVersionRow, (row.cluster, row.policies_hash))
            return _stored(row, unpack(Policies, policies.content, policies.codec, f"policies of {id_}"))

    def cycle_ids(self, run_id: str | None = None) -> Sequence[CycleId]:
        """All cycles in the order in which they ran, of one run or of all."""
        query = select(CycleRow.cluster, CycleRow.kind, CycleRow.seq).order_by(
            CycleRow.started_at, CycleRow.seq
        )
        if run_id is not None:
            query = query.where(CycleRow.run_id == run_id)
        with reading(self._engine) as session:
            return [CycleId(cluster, CycleKind(kind), seq) for cluster, kind, seq in session.execute(query)]

    def cycles(self, run_id: str | None = None) -> Iterator[Stored]:
        """All cycles in the order in which they ran, one at a time."""
        for id_ in self.cycle_ids(run_id):
            stored = self.cycle(id_)
            if stored is not None:
                yield stored

    def plan(self, id_: CycleId, stored: Stored) -> Plan:
        """The plan of a cycle, put together from its decisions."""
        query = _joined().where(
            DecisionRow.cluster == id_.cluster, DecisionRow.kind == id_.kind, DecisionRow.seq == id_.seq
        )
        with reading(self._engine) as session:
            rows = [_listed(*found) for found in session.execute(query)]
        return Plan(id_.kind, stored.frame.policies.version, {row.id.pool: row.decision for row in rows})

    def counts(self, run_id: str | None = None) -> dict[str, int]:
        """Decisions by outcome, and actions by state as `action_<state>`."""
        with reading(self._engine) as session:
            outcomes = session.execute(
                _of_run(select(DecisionRow.outcome, func.count()), DecisionRow, run_id).group_by(
                    DecisionRow.outcome
                )
            )
            states = session.execute(
                _of_run(select(ActionRow.state, func.count()), ActionRow, run_id).group_by(ActionRow.state)
            )
            return dict(outcomes.all()) | {f"action_{word}": count for word, count in states}


def folded(rows: Sequence[Listed]) -> list[Listed]:
    """Rows (newest first) with runs of "the same again" of one pool and kind as one row."""
    kept: list[Listed] = []
    newest: dict[tuple[str, CycleKind], int] = {}
    for row in rows:
        key = (row.id.pool, row.id.cycle.kind)
        index = newest.get(key)
        last = None if index is None else kept[index]
        if last is not None and index is not None and _same(last, row):
            kept[index] = _with(last, row)
        else:
            newest[key] = len(kept)
            kept.append(row)
    return kept


def _same(one: Listed, other: Listed) -> bool:
    quiet = one.outcome is not Outcome.CHANGE
    return quiet and (one.outcome, one.code, one.mode) == (other.outcome, other.code, other.mode)


def _with(row: Listed, older: Listed) -> Listed:
    return Listed(
        row.id, row.at, row.mode, row.outcome, row.code, row.decision, row.repeats + 1, older.first_at
    )


def _joined() -> Select[DecisionRow, str, int]:
    on_cycle = and_(
        DecisionRow.cluster == CycleRow.cluster,
        DecisionRow.kind == CycleRow.kind,
        DecisionRow.seq == CycleRow.seq,
    )
    return (
        select(DecisionRow, ReasonCodeRow.code, CycleRow.codec)
        .join(ReasonCodeRow, DecisionRow.reason_id == ReasonCodeRow.id)
        .join(CycleRow, on_cycle)
    )


def _matching(chosen: Filter) -> Select[DecisionRow, str, int]:
    query = _joined()
    wanted = (
        (chosen.pool, DecisionRow.pool == chosen.pool),
        (chosen.kind, DecisionRow.kind == chosen.kind),
        (chosen.outcome, DecisionRow.outcome == chosen.outcome),
        (chosen.code, ReasonCodeRow.code == chosen.code),
        (chosen.since, DecisionRow.decided_at >= micros(chosen.since or 0.0)),
        (chosen.until, DecisionRow.decided_at < micros(chosen.until or 0.0)),
    )
    return query.where(*[condition for value, condition in wanted if value is not None])


def _after(at: float, id_: DecisionId) -> ColumnElement[bool]:
    stamp = micros(at)
    same = DecisionRow.decided_at == stamp
    kind, seq, pool = str(id_.cycle.kind), id_.cycle.seq, id_.pool
    return or_(
        DecisionRow.decided_at < stamp,
        and_(same, DecisionRow.kind > kind),
        and_(same, DecisionRow.kind == kind, DecisionRow.seq < seq),
        and_(same, DecisionRow.kind == kind, DecisionRow.seq == seq, DecisionRow.pool > pool),
    )


def _listed(row: DecisionRow, code: str, codec: int) -> Listed:
    id_ = DecisionId(CycleId(row.cluster, CycleKind(row.kind), row.seq), PoolName(row.pool))
    decision = unpack(Decision, row.decision, codec, f"decision {id_}")
    at = seconds(row.decided_at)
    return Listed(id_, at, Mode(row.mode), Outcome(row.outcome), code, decision, first_at=at)


def _done(row: ActionRow, code: str, events: list[tuple[float, ActionState, str]]) -> Done:
    return Done(action_id(row), action_of(row, code), ActionState(row.state), row.detail, tuple(events))


def _stored(row: CycleRow, policies: Policies) -> Stored:
    id_ = CycleId(row.cluster, CycleKind(row.kind), row.seq)
    frame = Frame(
        observation=unpack(Observation, row.observation, row.codec, f"observation of {id_}"),
        policies=policies,
        state=unpack(State, row.state_before, row.codec, f"state of {id_}"),
        forecast=unpack(Forecast, row.forecast, row.codec, f"forecast of {id_}"),
    )
    after = unpack(State, row.state_after, row.codec, f"next state of {id_}")
    return Stored(id_, seconds(row.started_at), row.run_id, row.code_version, frame, after, row.plan_hash)


def _of_run(
    query: Select[str, int], table: type[DecisionRow | ActionRow], run_id: str | None
) -> Select[str, int]:
    if run_id is None:
        return query
    on_cycle = and_(table.cluster == CycleRow.cluster, table.kind == CycleRow.kind, table.seq == CycleRow.seq)
    return query.join(CycleRow, on_cycle).where(CycleRow.run_id == run_id)
