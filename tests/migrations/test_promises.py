"""What the database itself refuses, whoever asks: lives of actions, and history."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from controlplane.adapters.sql.open import Record
from controlplane.domain.lifecycle import BORN, MOVES
from controlplane.domain.plan import ActionState
from tests.adapters.sql.records import answer, made, weight
from tests.databases import REFUSALS, Database, Sql, only_postgresql, only_sqlite

ACTION = (
    "INSERT INTO actions SELECT cluster, kind, seq, pool, 9, run_id, source, action_kind, gateway, instance, "
    "target, level, seen, code_id, ?, reason, changed_at FROM actions"
)


@pytest.fixture
def acting(record: Record) -> Record:
    """One action is being applied."""
    record.ledger.record(made(answer(weight())))
    return record


def test_the_database_knows_the_states_and_moves_that_the_program_knows(sql: Sql) -> None:
    states = {state: bool(first) for state, first in sql("SELECT state, first FROM action_states")}
    moves = set(sql("SELECT before, after FROM action_moves"))
    assert states == {state: state in BORN.values() for state in ActionState}
    assert moves == {(before, after) for before, afters in MOVES.items() for after in afters}


@pytest.mark.parametrize("state", ActionState)
def test_an_action_is_born_only_where_its_life_may_begin(
    acting: Record, sql: Sql, state: ActionState
) -> None:
    if state in BORN.values():
        sql(ACTION, str(state))
        assert sql("SELECT state FROM actions WHERE ordinal = 9") == [(state,)]
    else:
        with pytest.raises(REFUSALS, match="cannot begin"):
            sql(ACTION, str(state))


def test_a_move_that_the_life_of_an_action_does_not_know_is_refused_by_the_database(
    acting: Record, sql: Sql
) -> None:
    with pytest.raises(REFUSALS, match="cannot go"):
        sql("UPDATE actions SET state = 'approved'")
    sql("UPDATE actions SET state = 'applied'")
    with pytest.raises(REFUSALS, match="cannot go"):
        sql("UPDATE actions SET state = 'applying'")


HISTORY = ("SELECT * FROM action_events ORDER BY n", "SELECT * FROM actions")


def assert_refused(sql: Sql, statement: str, words: str) -> None:
    before = [sql(query) for query in HISTORY]
    with pytest.raises(REFUSALS, match=words):
        sql(statement)
    assert [sql(query) for query in HISTORY] == before


@pytest.mark.parametrize("statement", ["UPDATE action_events SET at = 0", "DELETE FROM action_events"])
def test_history_of_an_action_that_stands_cannot_be_changed(acting: Record, sql: Sql, statement: str) -> None:
    assert_refused(sql, statement, "append only")


EVENT = "SELECT cluster, kind, seq, pool, ordinal, n, 0, 'applied', 'so it was' FROM action_events"
SETTLED = (
    "SELECT cluster, kind, seq, pool, ordinal, run_id, source, action_kind, gateway, instance, target, "
    "level, seen, code_id, 'proposed', reason, changed_at FROM actions"
)


@only_sqlite
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"INSERT OR REPLACE INTO action_events {EVENT}", "append only"),
        (f"REPLACE INTO action_events {EVENT}", "append only"),
        (f"INSERT OR REPLACE INTO actions {SETTLED}", "an action cannot be replaced"),
    ],
)
def test_on_sqlite_neither_an_action_nor_its_history_can_be_replaced(
    acting: Record, sql: Sql, statement: str, words: str
) -> None:
    """By a connection without `recursive_triggers`, whose REPLACE asks no trigger of a deletion."""
    assert sql("PRAGMA recursive_triggers") == [(0,)]
    assert_refused(sql, statement, words)


@only_postgresql
@pytest.mark.parametrize("table", ["action_events", "actions", "cycles"])
def test_on_postgresql_nobody_can_empty_history_at_once(acting: Record, sql: Sql, table: str) -> None:
    assert_refused(sql, f"TRUNCATE {table} CASCADE", "append only")


def test_history_goes_with_the_cycle_that_retention_removes(acting: Record, database: Database) -> None:
    with acting.engine.execution_options(write=True).begin() as connection:
        connection.execute(text("DELETE FROM cycles"))
    for table in ("decisions", "actions", "action_events"):
        assert database.rows(table) == 0
