"""From a cycle's record to the rows that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane import forms
from controlplane.adapters.sql.codec import CODEC, pack
from controlplane.adapters.sql.scope import Run
from controlplane.domain.ids import CycleId, PoolName
from controlplane.domain.plan import Decision, Plan
from controlplane.ports import CycleRecord

Values = dict[str, Any]


def cycle_key(id_: CycleId) -> Values:
    """A cycle's key columns."""
    return {"cluster": id_.cluster, "kind": id_.kind, "seq": id_.seq}


def policies_hash(record: CycleRecord) -> str:
    """Of all that was in force, profiles, commit and modes included: the version's own hash is of the
    files, which are the same when somebody runs them to observe only."""
    return forms.content_hash(record.frame.policies)


def policy_values(record: CycleRecord) -> Values:
    """Policies and profiles as they were in force."""
    policies = record.frame.policies
    return {
        "cluster": record.cycle.cluster,
        "policies_hash": policies_hash(record),
        "content_hash": policies.version.content_hash,
        "git_commit": policies.version.commit,
        "first_seen_at": record.started_at,
        "codec": CODEC,
        "body": pack(policies),
    }


def cycle_values(run: Run, record: CycleRecord) -> Values:
    """The cycle without its inputs."""
    return {
        **cycle_key(record.cycle),
        "run_id": run.run_id,
        "source": run.source,
        "observed_at": record.frame.observation.now,
        "started_at": record.started_at,
        "duration_s": record.duration_s,
        "code_version": record.code_version,
        "lease_token": run.lease_token,
        "policies_hash": policies_hash(record),
        "plan_hash": forms.content_hash(record.plan),
        "next_state_hash": forms.content_hash(record.next_state),
    }


def frame_values(record: CycleRecord) -> Values:
    """The inputs, and the state after them."""
    return {
        **cycle_key(record.cycle),
        "codec": CODEC,
        "observation": pack(record.frame.observation),
        "state": pack(record.frame.state),
        "forecast": pack(record.frame.forecast),
        "next_state": pack(record.next_state),
    }


def decision_values(
    run: Run, record: CycleRecord, pool: PoolName, codes: Mapping[str, int], streak: int
) -> Values:
    """One pool's answer."""
    decision = record.plan.decisions[pool]
    return {
        **cycle_key(record.cycle),
        "pool": pool,
        "run_id": run.run_id,
        "source": run.source,
        "decided_at": record.started_at,
        "mode": decision.mode,
        "outcome": decision.outcome,
        "code_id": codes[decision.explanation.code],
        "policies_hash": policies_hash(record),
        "streak_seq": streak,
        "codec": CODEC,
        "body": pack(decision),
    }


def codes_in(plan: Plan) -> set[str]:
    """All reason codes that a plan names."""
    decided = {code for decision in plan.decisions.values() for code in _codes(decision)}
    return decided | {each.code for each in plan.loans}


def _codes(decision: Decision) -> set[str]:
    return {decision.explanation.code, *(action.code for action in decision.actions)}
