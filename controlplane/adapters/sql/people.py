"""What people do to the control plane: each act changes a row and leaves one that nobody can change."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, insert, update

from controlplane.adapters.sql.engine import WriteSession, writing
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import ActRow, HoldEffect, HoldRow
from controlplane.domain.observation import Hold
from controlplane.ports import Conflict

FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Said:
    """Who did it, why, and when (epoch seconds)."""

    author: str
    reason: str
    at: float


def place_hold(engine: Engine, run: Run, hold_id: str, hold: Hold) -> None:
    """A pool, or the fleet, may not change until the hold ends. Raises Conflict for a used id."""
    with writing(engine) as session:
        session.execute(
            insert(HoldRow).values(
                cluster=run.cluster,
                hold_id=hold_id,
                effect=HoldEffect.HOLD,
                pool=hold.pool or "",
                author=hold.author,
                reason=hold.reason,
                since=hold.since,
                until=hold.until,
            )
        )
        said = Said(hold.author, hold.reason, hold.since)
        _act(session, run, f"{hold_id}:placed", said, ("hold", hold.pool or FLEET))


def lift_hold(engine: Engine, run: Run, hold_id: str, said: Said) -> None:
    """End a hold before its time. Raises Conflict where it is not in force."""
    with writing(engine) as session:
        lifted = session.execute(
            update(HoldRow)
            .where(HoldRow.cluster == run.cluster, HoldRow.hold_id == hold_id, HoldRow.lifted_at.is_(None))
            .values(lifted_at=said.at)
            .returning(HoldRow.pool)
        ).all()
        if not lifted:
            raise Conflict(f"there is no hold {hold_id} in force")
        _act(session, run, f"{hold_id}:lifted", said, ("lift", lifted[0].pool or FLEET))


def _act(session: WriteSession, run: Run, act_id: str, said: Said, done: tuple[str, str]) -> None:
    act, subject = done
    session.execute(
        insert(ActRow).values(
            cluster=run.cluster,
            act_id=act_id,
            at=said.at,
            source=run.source,
            run_id=run.run_id,
            author=said.author,
            act=act,
            subject=subject,
            reason=said.reason,
        )
    )
