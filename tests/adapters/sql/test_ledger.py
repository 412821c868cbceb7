"""The ledger: record before act, in one transaction, and everything found again afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event

from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.open import Record
from controlplane.adapters.sql.scope import Run
from controlplane.domain.ids import CycleKind, DecisionId, PoolName, Source
from controlplane.domain.lifecycle import BORN
from controlplane.domain.plan import Action, ActionKind, ActionState, Plan
from controlplane.domain.policy import Mode
from controlplane.domain.state import PoolState, State
from controlplane.ports import Conflict, Unavailable
from tests.adapters.sql.conftest import Rows, Sql
from tests.adapters.sql.records import answer, cycle_id, decided, made, slow_instance, weight
from tests.builders import NOW, policies
from tests.databases import Database, closed, led, only_sqlite

CHAT = DecisionId(cycle_id(), PoolName("chat-8b"))
TABLES = ("cycles", "frames", "memory", "decisions", "streaks", "actions", "action_events", "reason_codes")


def states(record: Record, id_: DecisionId = CHAT) -> list[ActionState]:
    return [each.state for each in record.reader.actions(id_)]


@pytest.mark.parametrize("mode", Mode)
def test_only_actions_of_pools_in_auto_may_be_carried_out(record: Record, mode: Mode) -> None:
    runnable = record.ledger.record(made(answer(weight(), mode=mode)))
    assert states(record) == [BORN[mode]]
    assert [action for _, action in runnable] == ([weight()] if mode is Mode.AUTO else [])


def test_an_action_carries_its_decision_and_its_place_in_it(record: Record) -> None:
    runnable = record.ledger.record(made(answer(weight(75), weight(90, "chat-8b-02"))))
    assert [str(id_) for id_, _ in runnable] == ["demo:weights:1:chat-8b:0", "demo:weights:1:chat-8b:1"]


def test_what_a_crash_left_between_record_and_settle_is_found_by_the_next_controller(
    database: Database,
) -> None:
    first = led(database)
    runnable = first.ledger.record(made(answer(weight())))
    closed(first)
    second = led(database)
    assert second.ledger.unknown_actions() == runnable
    second.ledger.settle({runnable[0][0]: (ActionState.APPLIED, "seen at 75 afterwards")}, NOW + 5)
    assert second.ledger.unknown_actions() == []
    closed(second)


def test_an_unknown_outcome_stays_to_be_settled_and_keeps_its_history(record: Record) -> None:
    ((id_, _),) = record.ledger.record(made(answer(weight())))
    record.ledger.settle({id_: (ActionState.UNKNOWN, "no answer within 1.5 s")}, NOW + 1)
    assert [each for each, _ in record.ledger.unknown_actions()] == [id_]
    record.ledger.settle({id_: (ActionState.FAILED, "seen at 100 afterwards")}, NOW + 6)
    (done,) = record.reader.actions(CHAT)
    assert done.events == (
        (NOW, ActionState.APPLYING, ""),
        (NOW + 1, ActionState.UNKNOWN, "no answer within 1.5 s"),
        (NOW + 6, ActionState.FAILED, "seen at 100 afterwards"),
    )


def test_the_same_outcome_twice_is_no_matter_and_leaves_one_event(record: Record) -> None:
    ((id_, _),) = record.ledger.record(made(answer(weight())))
    for at in (NOW + 1, NOW + 2):
        record.ledger.settle({id_: (ActionState.APPLIED, "")}, at)
    (done,) = record.reader.actions(CHAT)
    assert [state for _, state, _ in done.events] == [ActionState.APPLYING, ActionState.APPLIED]


def test_an_outcome_that_may_not_follow_is_refused_and_costs_the_others_nothing(record: Record) -> None:
    (first, _), (second, _) = record.ledger.record(made(answer(weight(), weight(90, "chat-8b-02"))))
    record.ledger.settle({first: (ActionState.APPLIED, "")}, NOW + 1)
    with pytest.raises(Conflict, match=f"{first} is applied, and cannot become failed"):
        record.ledger.settle({first: (ActionState.FAILED, ""), second: (ActionState.APPLIED, "")}, NOW + 2)
    assert states(record) == [ActionState.APPLIED, ActionState.APPLIED]


def test_an_outcome_of_an_action_that_was_never_recorded_is_refused(record: Record) -> None:
    ((id_, _),) = record.ledger.record(made(answer(weight())))
    with pytest.raises(Conflict, match="not on record"):
        record.ledger.settle({replace(id_, ordinal=7): (ActionState.APPLIED, "")}, NOW)


def test_a_later_level_for_the_same_target_supersedes_what_is_still_open(record: Record) -> None:
    record.ledger.record(made(answer(weight(75), weight(90, "chat-8b-02"))))
    record.ledger.record(made(answer(weight(60)), seq=2))
    first, second = record.reader.actions(CHAT)
    assert (first.state, first.detail) == (ActionState.SUPERSEDED, "by demo:weights:2:chat-8b:0")
    assert second.state is ActionState.APPLYING, "another instance is another target"


@pytest.mark.parametrize(
    ("first", "opposite"),
    [(ActionKind.OPEN, ActionKind.CLOSE), (ActionKind.ADD, ActionKind.REMOVE)],
    ids=["closing", "removing"],
)
def test_the_opposite_supersedes_what_is_still_unknown(
    record: Record, first: ActionKind, opposite: ActionKind
) -> None:
    record.ledger.record(made(answer(weight(1, kind=first))))
    assert states(record) == [ActionState.APPLYING]
    record.ledger.record(made(answer(weight(0, kind=opposite)), seq=2))
    assert states(record) == [ActionState.SUPERSEDED]


@pytest.mark.parametrize(
    "other",
    [weight(60, kind=ActionKind.SET_LIMIT), weight(60, gateway="second"), weight(60, "chat-8b-02")],
    ids=["limit", "gateway", "instance"],
)
def test_another_dimension_gateway_or_instance_supersedes_nothing(record: Record, other: Action) -> None:
    record.ledger.record(made(answer(weight())))
    record.ledger.record(made(answer(other), seq=2))
    assert states(record) == [ActionState.APPLYING]


def test_a_proposal_supersedes_nothing_since_it_moves_nothing(record: Record) -> None:
    record.ledger.record(made(answer(weight())))
    record.ledger.record(made(answer(weight(60), mode=Mode.OBSERVE), seq=2))
    assert states(record) == [ActionState.APPLYING]


def test_what_waits_for_a_person_is_superseded_by_the_next_wish(record: Record) -> None:
    record.ledger.record(made(answer(weight(), mode=Mode.RECOMMEND)))
    record.ledger.record(made(answer(weight(60), mode=Mode.RECOMMEND), seq=2))
    assert states(record) == [ActionState.SUPERSEDED]


def test_a_recommendation_does_not_supersede_what_may_have_taken_effect(record: Record) -> None:
    record.ledger.record(made(answer(weight())))
    record.ledger.record(made(answer(weight(60), mode=Mode.RECOMMEND), seq=2))
    assert states(record) == [ActionState.APPLYING]


def test_what_is_settled_is_never_superseded(record: Record) -> None:
    ((id_, _),) = record.ledger.record(made(answer(weight())))
    record.ledger.settle({id_: (ActionState.APPLIED, "")}, NOW + 1)
    record.ledger.record(made(answer(weight(60)), seq=2))
    assert states(record) == [ActionState.APPLIED]


@pytest.mark.parametrize("table", [*TABLES, "policy_versions"])
def test_a_record_that_breaks_half_way_leaves_nothing_behind(record: Record, rows: Rows, table: str) -> None:
    def refuse(_c: object, _cur: object, statement: str, *_rest: object) -> None:
        if statement.startswith(f"INSERT INTO {table}"):
            raise OSError("the plug was pulled")

    event.listen(record.engine, "before_cursor_execute", refuse)
    with pytest.raises(OSError, match="plug"):
        record.ledger.record(made(answer(weight())))
    event.remove(record.engine, "before_cursor_execute", refuse)
    assert {each: rows(each) for each in TABLES} == dict.fromkeys(TABLES, 0)
    assert record.ledger.unknown_actions() == []
    assert len(record.ledger.record(made(answer(weight())))) == 1, "and the next attempt works"


def test_a_commit_that_fails_lets_nothing_act(record: Record, sql: Sql) -> None:
    def refuse(_connection: object) -> None:
        raise OSError("no answer")

    event.listen(record.engine, "commit", refuse)
    with pytest.raises(OSError, match="no answer"):
        record.ledger.record(made(answer(weight())))
    event.remove(record.engine, "commit", refuse)
    assert sql("SELECT count(*) FROM cycles") == [(0,)]


def test_a_cycle_is_recorded_once(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer(weight(75))))
    with pytest.raises(Conflict, match="refused"):
        record.ledger.record(made(answer(weight(60))))
    assert sql("SELECT level FROM actions") == [(75,)]


def test_a_cycle_of_another_cluster_is_refused(record: Record) -> None:
    foreign = replace(made(answer()), cycle=cycle_id(cluster="other"))
    with pytest.raises(Conflict, match="cluster demo"):
        record.ledger.record(foreign)


def test_numbers_of_cycles_never_repeat_even_after_all_were_removed(record: Record, sql: Sql) -> None:
    assert [record.ledger.next_seq(CycleKind.WEIGHTS) for _ in range(2)] == [1, 2]
    record.ledger.record(made(answer(), seq=2))
    sql("DELETE FROM decisions")
    sql("DELETE FROM frames")
    sql("DELETE FROM cycles")
    assert record.ledger.next_seq(CycleKind.WEIGHTS) == 3
    assert record.ledger.next_seq(CycleKind.CAPACITY) == 1, "each kind counts for itself"


def test_memory_is_that_of_the_cycle_recorded_last_although_the_clock_went_back(record: Record) -> None:
    assert record.ledger.last_state() is None
    record.ledger.record(made(answer(), at=NOW, mark=1))
    record.ledger.record(made(answer(), at=NOW - 3600, kind=CycleKind.CAPACITY, mark=2))
    assert record.ledger.last_state() == State({PoolName("chat-8b"): PoolState(breaches=2)})


def test_memory_outlives_the_cycles_it_came_from(record: Record, sql: Sql) -> None:
    """B-154: pruning must not forget a cooldown that is longer than what is kept."""
    record.ledger.record(made(answer(), mark=3))
    sql("DELETE FROM cycles")
    sql("DELETE FROM frames")
    assert record.ledger.last_state() == State({PoolName("chat-8b"): PoolState(breaches=3)})


def test_a_restarted_controller_goes_on_from_the_same_memory_and_decides_the_same(
    database: Database,
) -> None:
    first = led(database)
    one = decided(slow_instance(), first.ledger.next_seq(CycleKind.WEIGHTS))
    first.ledger.record(one)
    closed(first)
    second = led(database)
    state = second.ledger.last_state()
    assert state == one.next_state
    unbroken = decided(slow_instance(NOW + 5), 2, one.next_state)
    assert decided(slow_instance(NOW + 5), second.ledger.next_seq(CycleKind.WEIGHTS), state) == unbroken
    closed(second)


@pytest.mark.parametrize("source", [Source.BACKTEST, Source.BACKFILL])
def test_a_look_at_the_past_shares_no_memory_and_no_open_action_with_the_living(
    record: Record, sql: Sql, source: Source
) -> None:
    record.ledger.record(made(answer(weight()), mark=1))
    run = Run("demo", "past", source)
    sql("INSERT INTO runs VALUES ('demo', 'past', ?, 'x', 0)", str(source))
    past = SqlLedger(record.engine, run)
    assert (past.last_state(), past.unknown_actions()) == (None, [])
    past.record(made(answer(weight(10)), seq=2, mark=9))
    assert record.ledger.last_state() == State({PoolName("chat-8b"): PoolState(breaches=1)})
    assert states(record) == [ActionState.APPLYING], "nor does it supersede"


def test_policies_are_stored_once_while_they_stay_the_same(record: Record, sql: Sql) -> None:
    for seq in (1, 2):
        record.ledger.record(made(answer(), seq=seq))
    assert sql("SELECT count(*) FROM policy_versions") == [(1,)]


def test_the_same_files_run_otherwise_are_another_version(record: Record, sql: Sql) -> None:
    """Files run to observe only, or committed, have the same content hash; what was in force differs."""
    plain = policies()
    committed = replace(plain, version=replace(plain.version, commit="abc123"))
    observed = replace(
        plain, pools={name: replace(each, weights_mode=Mode.OBSERVE) for name, each in plain.pools.items()}
    )
    for seq, chosen in enumerate((plain, committed, observed), start=1):
        cycle = decided(slow_instance(NOW + seq), seq, chosen=chosen)
        record.ledger.record(cycle)
        stored = record.reader.cycle(cycle.cycle)
        assert stored is not None
        assert stored.frame.policies == chosen
        assert record.reader.plan(cycle.cycle, stored) == cycle.plan
    assert sql("SELECT count(*), count(DISTINCT content_hash) FROM policy_versions") == [(3, 1)]


def test_a_cycle_without_any_pool_is_recorded_too(record: Record) -> None:
    empty = made()
    assert record.ledger.record(empty) == []
    stored = record.reader.cycle(empty.cycle)
    assert stored is not None
    assert record.reader.plan(empty.cycle, stored) == Plan(CycleKind.WEIGHTS, policies().version, {})


def test_a_controller_whose_place_was_taken_writes_nothing_more(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer()))
    sql("UPDATE leases SET token = token + 1, holder = 'elsewhere:7'")
    with pytest.raises(Conflict, match="no longer leads: elsewhere:7 does"):
        record.ledger.record(made(answer(), seq=2))
    assert sql("SELECT count(*) FROM cycles") == [(1,)]


def test_every_cycle_carries_the_token_under_which_it_was_led(database: Database, sql: Sql) -> None:
    for seq in (1, 2):
        opened = led(database)
        opened.ledger.record(made(answer(), seq=seq))
        closed(opened)
    assert sql("SELECT seq, lease_token FROM cycles ORDER BY seq") == [(1, 1), (2, 2)]


def test_times_are_whole_microseconds_in_utc(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer(weight()), at=1_800_000_000.123457))
    micros = 1_800_000_000_123_457
    assert sql("SELECT started_at, observed_at FROM cycles") == [(micros, micros)]
    assert sql("SELECT changed_at FROM actions") == [(micros,)]


@only_sqlite
def test_times_are_integers_on_sqlite_too_which_would_store_anything(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer(weight()), at=1_800_000_000.123457))
    assert sql("SELECT typeof(changed_at), typeof(level) FROM actions") == [("integer", "integer")]


def test_a_record_that_is_gone_is_unavailable_and_nothing_may_act(record: Record, sql: Sql) -> None:
    sql("ALTER TABLE actions RENAME TO somewhere_else")
    with pytest.raises(Unavailable, match=r"no such table|does not exist"):
        record.ledger.record(made(answer(weight())))
    assert sql("SELECT count(*) FROM cycles") == [(0,)]
