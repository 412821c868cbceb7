"""Actions in the record: born, moved from state to state, superseded. The database itself refuses
a move that `domain.lifecycle` does not know (a trigger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, func, insert, select, update

from controlplane.adapters.sql.engine import WriteSession
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import ActionEventRow, ActionRow
from controlplane.domain.ids import ActionId, CycleId, DecisionId, InstanceId, PoolName
from controlplane.domain.lifecycle import BORN, MOVES, SUPERSEDES, target
from controlplane.domain.plan import Action, ActionState, Plan
from controlplane.domain.policy import Mode

Planned = Sequence[tuple[ActionId, Action, Mode]]


def planned(cycle: CycleId, plan: Plan) -> Planned:
    """A plan's actions with their ids and the modes of their pools, in the plan's order."""
    return [
        (ActionId(DecisionId(cycle, pool), ordinal), action, decision.mode)
        for pool, decision in plan.decisions.items()
        for ordinal, action in enumerate(decision.actions)
    ]


def add(session: WriteSession, run: Run, actions: Planned, at: float, codes: Mapping[str, int]) -> None:
    """Record new actions in their first states."""
    if not actions:
        return
    session.execute(insert(ActionRow), [_born(run, each, at, codes) for each in actions])
    events = [
        {**key(id_), "n": 0, "at": at, "state": BORN[mode], "reason": ""} for id_, _action, mode in actions
    ]
    session.execute(insert(ActionEventRow), events)


def supersede(session: WriteSession, run: Run, actions: Planned, at: float) -> None:
    """An older action that is still open, and whose target gets a new level, is superseded.

    Safe, since an effect is a level: the later one wins whatever became of the earlier.
    """
    later = {target(action): (id_, SUPERSEDES[mode]) for id_, action, mode in actions}
    if not any(states for _, states in later.values()):
        return
    open_ = select(ActionRow).where(run.shares(ActionRow), ActionRow.state.in_(SUPERSEDES[Mode.AUTO]))
    for row in session.scalars(open_).all():
        id_, states = later.get(row.target, (None, frozenset()))
        if row.state in states:
            move(session, action_id(row), ActionState.SUPERSEDED, f"by {id_}", at)


def move(session: WriteSession, id_: ActionId, state: ActionState, reason: str, at: float) -> bool:
    """Compare and set. False where the action is in no state from which `state` may follow."""
    before = [each for each, afters in MOVES.items() if state in afters]
    changed = session.execute(
        update(ActionRow)
        .where(_is(id_), ActionRow.state.in_(before))
        .values(state=state, reason=reason, changed_at=at)
        .returning(ActionRow.ordinal)
    ).all()
    if changed:
        session.execute(insert(ActionEventRow).values(_event(id_, state, reason, at)))
    return bool(changed)


def state_of(session: WriteSession, id_: ActionId) -> ActionState | None:
    """The state an action is in; None where there is no such action."""
    return session.scalar(select(ActionRow.state).where(_is(id_)))


def key(id_: ActionId) -> dict[str, Any]:
    """An action's key columns."""
    cycle = id_.decision.cycle
    return {
        "cluster": cycle.cluster,
        "kind": cycle.kind,
        "seq": cycle.seq,
        "pool": id_.decision.pool,
        "ordinal": id_.ordinal,
    }


def action_id(row: ActionRow | ActionEventRow) -> ActionId:
    """A row's action."""
    cycle = CycleId(row.cluster, row.kind, row.seq)
    return ActionId(DecisionId(cycle, PoolName(row.pool)), row.ordinal)


def action_of(row: ActionRow, code: str) -> Action:
    """An action row as the domain's value."""
    return Action(
        kind=row.action_kind,
        pool=PoolName(row.pool),
        gateway=row.gateway,
        instance=None if row.instance is None else InstanceId(row.instance),
        level=row.level,
        seen=row.seen,
        code=code,
    )


def _born(
    run: Run, one: tuple[ActionId, Action, Mode], at: float, codes: Mapping[str, int]
) -> dict[str, Any]:
    id_, action, mode = one
    return {
        **key(id_),
        "run_id": run.run_id,
        "source": run.source,
        "action_kind": action.kind,
        "gateway": action.gateway,
        "instance": action.instance,
        "target": target(action),
        "level": action.level,
        "seen": action.seen,
        "code_id": codes[action.code],
        "state": BORN[mode],
        "reason": "",
        "changed_at": at,
    }


def _event(id_: ActionId, state: ActionState, reason: str, at: float) -> dict[str, Any]:
    earlier = select(func.count()).select_from(ActionEventRow)
    for column, value in key(id_).items():
        earlier = earlier.where(getattr(ActionEventRow, column) == value)
    return {**key(id_), "n": earlier.scalar_subquery(), "at": at, "state": state, "reason": reason}


def _is(id_: ActionId) -> Any:
    return and_(*[getattr(ActionRow, column) == value for column, value in key(id_).items()])
