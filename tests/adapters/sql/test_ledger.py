"""The ledger: one transaction before anything is touched, and outcomes that are written once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from controlplane.adapters.sql.engine import reading, writing
from controlplane.adapters.sql.open import Record, open_record
from controlplane.adapters.sql.tables import HoldRow
from controlplane.domain.ids import ActionId, CycleKind, DecisionId
from controlplane.domain.plan import ActionState
from controlplane.domain.policy import Mode
from controlplane.ports import Unavailable
from tests.adapters.sql.history import POOL, cycle_record, observed, write
from tests.builders import NOW, policies, pool_policy, steady_pool

TABLES = ("cycles", "decisions", "actions", "action_events", "policy_versions", "reason_codes")


def rows(record: Record) -> dict[str, int]:
    with reading(record.engine) as session:
        return {each: session.scalar(text(f"SELECT count(*) FROM {each}")) or 0 for each in TABLES}  # noqa: S608


def states(record: Record, id_: DecisionId) -> list[ActionState]:
    return [done.state for done in record.reader.actions(id_)]


def test_what_is_recorded_reads_back_as_it_was(record: Record) -> None:
    told = cycle_record(1, observed(CycleKind.WEIGHTS, NOW))
    record.ledger.record(told)
    stored = record.reader.cycle(told.cycle)
    assert stored is not None
    assert stored.frame == told.frame
    assert stored.next_state == told.next_state
    assert record.reader.plan(told.cycle, stored) == told.plan
    assert record.ledger.last_state() == told.next_state


@given(running=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=6))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_load_reads_back_equal(record: Record, running: list[float]) -> None:
    seq = record.ledger.next_seq(CycleKind.CAPACITY)
    told = cycle_record(seq, steady_pool(len(running), running, now=NOW + seq))
    record.ledger.record(told)
    stored = record.reader.cycle(told.cycle)
    assert stored is not None
    assert (stored.frame, stored.next_state) == (told.frame, told.next_state)


def test_a_cycle_that_cannot_be_written_whole_is_not_written_at_all(record: Record) -> None:
    before = rows(record)
    told = cycle_record(1, observed(CycleKind.WEIGHTS, NOW))
    with writing(record.engine) as session:
        session.execute(
            text(
                "CREATE TRIGGER broken BEFORE INSERT ON action_events BEGIN SELECT RAISE(ABORT, 'disk'); END"
            )
        )
    with pytest.raises(Unavailable, match="disk"):
        record.ledger.record(told)
    assert rows(record) == before
    with writing(record.engine) as session:
        session.execute(text("DROP TRIGGER broken"))
    assert len(record.ledger.record(told)) == 4
    assert rows(record)["cycles"] == 1


def test_the_same_cycle_cannot_be_recorded_twice(record: Record) -> None:
    told = cycle_record(1, observed(CycleKind.WEIGHTS, NOW))
    record.ledger.record(told)
    before = rows(record)
    with pytest.raises(Unavailable):
        record.ledger.record(told)
    assert rows(record) == before


@pytest.mark.parametrize(
    ("mode", "first", "may_run"),
    [
        (Mode.OBSERVE, ActionState.PROPOSED, 0),
        (Mode.RECOMMEND, ActionState.AWAITING, 0),
        (Mode.AUTO, ActionState.APPLYING, 4),
    ],
)
def test_only_automatic_actions_may_be_carried_out(
    record: Record, mode: Mode, first: ActionState, may_run: int
) -> None:
    rules = policies(pool_policy(weights_mode=mode))
    told = cycle_record(1, observed(CycleKind.WEIGHTS, NOW), rules=rules)
    assert len(record.ledger.record(told)) == may_run
    assert states(record, DecisionId(told.cycle, POOL)) == [first] * 4


def test_an_outcome_is_written_once_and_every_change_kept(record: Record) -> None:
    (id_, _action), *_ = write(record, 1)[0]
    record.ledger.settle({id_: (ActionState.UNKNOWN, "no answer")}, NOW + 1)
    record.ledger.settle({id_: (ActionState.APPLIED, "seen at 40")}, NOW + 2)
    record.ledger.settle({id_: (ActionState.FAILED, "too late")}, NOW + 3)
    done = record.reader.actions(id_.decision)[id_.ordinal]
    assert (done.state, done.detail) == (ActionState.APPLIED, "seen at 40")
    assert [state for _at, state, _detail in done.events] == ["applying", "unknown", "applied"]
    assert [at for at, _state, _detail in done.events] == [NOW, NOW + 1, NOW + 2]


def test_an_outcome_of_nothing_known_changes_nothing(record: Record) -> None:
    runnable = write(record, 1)[0]
    before = rows(record)
    unknown = ActionId(runnable[0][0].decision, 99)
    record.ledger.settle({unknown: (ActionState.APPLIED, "")}, NOW)
    assert rows(record) == before


def test_a_crash_between_record_and_act_leaves_what_to_settle(url: str) -> None:
    crashed = open_record(url, "demo", "demo", "run-1")
    runnable = write(crashed, 1)[0]
    crashed.lease.release()
    crashed.close()
    again = open_record(url, "demo", "demo", "run-2")
    try:
        assert again.ledger.unknown_actions() == runnable
        outcomes = {id_: (ActionState.APPLIED, "seen") for id_, _ in runnable}
        again.ledger.settle(outcomes, NOW + 9)
        assert again.ledger.unknown_actions() == []
    finally:
        again.lease.release()
        again.close()


def test_a_newer_plan_for_the_same_target_supersedes_what_was_never_settled(record: Record) -> None:
    first = write(record, 1)[0]
    told = cycle_record(2, observed(CycleKind.WEIGHTS, NOW + 2))
    second = record.ledger.record(told)
    assert states(record, first[0][0].decision) == [ActionState.SUPERSEDED] * 4
    assert [id_ for id_, _ in record.ledger.unknown_actions()] == [id_ for id_, _ in second]


def test_sequences_go_on_over_runs_and_are_counted_by_kind(url: str) -> None:
    for number, run in enumerate(("run-1", "run-2")):
        opened = open_record(url, "demo", "demo", run)
        assert opened.ledger.next_seq(CycleKind.WEIGHTS) == 1 + number
        assert opened.ledger.next_seq(CycleKind.CAPACITY) == 1
        opened.ledger.record(cycle_record(1 + number, observed(CycleKind.WEIGHTS, NOW + number, limit=40)))
        assert opened.reader.cycle_ids(run) == opened.reader.cycle_ids()[number:]
        opened.lease.release()
        opened.close()


def test_the_last_state_is_the_newest_of_either_kind(record: Record) -> None:
    assert record.ledger.last_state() is None
    weights = cycle_record(5, observed(CycleKind.WEIGHTS, NOW + 10))
    capacity = cycle_record(1, observed(CycleKind.CAPACITY, NOW + 12), weights.next_state)
    record.ledger.record(weights)
    assert record.ledger.last_state() == weights.next_state
    record.ledger.record(capacity)
    assert record.ledger.last_state() == capacity.next_state != weights.next_state


def test_holds_in_force_are_those_of_the_cluster_unexpired_and_unlifted(record: Record) -> None:
    at = int(NOW * 1_000_000)
    common = {"author": "ana", "since": at - 5, "until": None, "lifted_at": None}
    with writing(record.engine) as session:
        session.add_all(
            [
                HoldRow(cluster="demo", pool="chat-8b", reason="in force", **common),
                HoldRow(cluster="demo", pool=None, reason="whole fleet", **{**common, "until": at + 1}),
                HoldRow(cluster="demo", pool="chat-8b", reason="expired", **{**common, "until": at}),
                HoldRow(cluster="demo", pool="chat-8b", reason="lifted", **{**common, "lifted_at": at - 1}),
                HoldRow(cluster="other", pool="chat-8b", reason="elsewhere", **common),
            ]
        )
    assert [(hold.pool, hold.reason) for hold in record.ledger.holds(NOW)] == [
        ("chat-8b", "in force"),
        (None, "whole fleet"),
    ]


def test_policies_are_stored_once_however_often_they_are_in_force(record: Record) -> None:
    write(record, 4)
    assert rows(record)["policy_versions"] == 1
    other = policies(pool_policy(priority=9))
    changed = replace(other, version=replace(other.version, content_hash="1" * 64))
    record.ledger.record(cycle_record(9, observed(CycleKind.WEIGHTS, NOW + 99), rules=changed))
    assert rows(record)["policy_versions"] == 2
