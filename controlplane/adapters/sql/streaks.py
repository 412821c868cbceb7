"""The same again: consecutive decisions of a pool that say the same stand in lists as one.

Each is recorded in full all the same, since "why did it not scale?" needs the figures of its own
instant. Folding happens as they are written, so that a list costs the same however long it lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select

from controlplane.adapters.sql.engine import WriteSession
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import StreakRow
from controlplane.domain.ids import CycleId, PoolName
from controlplane.domain.plan import Decision
from controlplane.domain.policy import Mode
from controlplane.ports import CycleRecord


def fingerprint(decision: Decision) -> str:
    """What makes two decisions the same: mode, outcome, reason, sizes and levels, without the
    figures that move with every sample."""
    explanation = decision.explanation
    parts = [decision.mode, decision.outcome, explanation.code]
    parts += [str(explanation.before), str(explanation.after)]
    parts += [f"{each.kind}:{each.gateway}:{each.instance}:{each.level}" for each in decision.actions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def foldable(decision: Decision) -> bool:
    """Whether nothing is carried out: what acts is never folded away."""
    return not decision.actions or decision.mode is not Mode.AUTO


def enter(
    session: WriteSession, run: Run, cycle: CycleRecord, pool: PoolName, codes: Mapping[str, int]
) -> int:
    """Count a decision in its pool's streak, or begin one. Answers the streak's first number."""
    decision = cycle.plan.decisions[pool]
    newest = _newest(session, run, cycle.cycle, pool)
    same = newest is not None and newest.fingerprint == fingerprint(decision)
    if newest is not None and same and foldable(decision):
        newest.last_seq, newest.last_at, newest.count = cycle.cycle.seq, cycle.started_at, newest.count + 1
        return newest.first_seq
    session.execute(insert(StreakRow).values(_begun(run, cycle, decision, codes)))
    return cycle.cycle.seq


def _newest(session: WriteSession, run: Run, cycle: CycleId, pool: PoolName) -> StreakRow | None:
    return session.scalars(
        select(StreakRow)
        .where(run.shares(StreakRow), StreakRow.kind == cycle.kind, StreakRow.pool == pool)
        .order_by(StreakRow.first_seq.desc())
        .limit(1)
    ).first()


def _begun(run: Run, cycle: CycleRecord, decision: Decision, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "cluster": run.cluster,
        "kind": cycle.cycle.kind,
        "pool": decision.pool,
        "first_seq": cycle.cycle.seq,
        "run_id": run.run_id,
        "source": run.source,
        "first_at": cycle.started_at,
        "last_seq": cycle.cycle.seq,
        "last_at": cycle.started_at,
        "count": 1,
        "outcome": decision.outcome,
        "code_id": codes[decision.explanation.code],
        "fingerprint": fingerprint(decision),
    }
