"""What people do: holds in force, and acts that nobody can take back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.adapters.sql.open import Record
from controlplane.adapters.sql.people import Said, lift_hold, place_hold
from controlplane.domain.ids import PoolName
from controlplane.domain.observation import Hold
from controlplane.ports import Conflict
from tests.adapters.sql.conftest import Rows, Sql
from tests.builders import NOW
from tests.databases import REFUSALS, only_postgresql, only_sqlite

HOLD = Hold(PoolName("chat-8b"), "anna", "load test", NOW, NOW + 600)


def place(record: Record, hold: Hold = HOLD, hold_id: str = "h1") -> None:
    place_hold(record.engine, record.run, hold_id, hold)


def lift(record: Record, at: float, hold_id: str = "h1") -> None:
    lift_hold(record.engine, record.run, hold_id, Said("ben", "test is over", at))


def test_a_hold_is_in_force_until_it_expires_and_not_at_that_instant(record: Record) -> None:
    place(record)
    assert record.ledger.holds(NOW + 599.999) == [HOLD]
    assert record.ledger.holds(NOW + 600) == []


def test_a_hold_of_the_fleet_without_an_end_stays_until_somebody_lifts_it(record: Record) -> None:
    hold = Hold(None, "anna", "incident", NOW)
    place(record, hold)
    assert record.ledger.holds(NOW + 1e7) == [hold]
    lift(record, NOW + 60)
    assert record.ledger.holds(NOW + 61) == []


def test_a_hold_cannot_be_lifted_twice_nor_placed_twice(record: Record, rows: Rows) -> None:
    place(record)
    with pytest.raises(Conflict):
        place(record, replace(HOLD, author="eve"))
    lift(record, NOW + 1)
    with pytest.raises(Conflict, match="no hold h1 in force"):
        lift(record, NOW + 2)
    assert rows("acts") == 2


def test_both_acts_stay_with_author_reason_and_origin(record: Record, sql: Sql) -> None:
    place(record)
    lift(record, NOW + 1)
    assert sql("SELECT author, act, subject, reason, source FROM acts ORDER BY at") == [
        ("anna", "hold", "chat-8b", "load test", "live"),
        ("ben", "lift", "chat-8b", "test is over", "live"),
    ]


@pytest.mark.parametrize("statement", ["UPDATE acts SET author = 'nobody'", "DELETE FROM acts"])
def test_no_program_at_the_database_can_change_or_remove_an_act(
    record: Record, sql: Sql, statement: str
) -> None:
    assert_refused(record, sql, statement)


@only_sqlite
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO acts SELECT * FROM acts",
        "REPLACE INTO acts (cluster, act_id, at, source, author, act, subject, reason) "  # noqa: ISC004
        "SELECT cluster, act_id, 0, source, 'nobody', act, subject, reason FROM acts",
        "UPDATE OR REPLACE acts SET author = 'nobody'",
    ],
)
def test_on_sqlite_no_program_can_replace_an_act(record: Record, sql: Sql, statement: str) -> None:
    assert_refused(record, sql, statement)


@only_postgresql
def test_on_postgresql_no_program_can_remove_all_acts_at_once(record: Record, sql: Sql) -> None:
    assert_refused(record, sql, "TRUNCATE acts")


def assert_refused(record: Record, sql: Sql, statement: str) -> None:
    place(record)
    before = sql("SELECT * FROM acts")
    with pytest.raises(REFUSALS, match="append only"):
        sql(statement)
    assert sql("SELECT * FROM acts") == before
