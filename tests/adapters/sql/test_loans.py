"""The ledger of loans: what is booked, and what the database refuses whoever asks for it."""

from __future__ import annotations

import pytest

from controlplane.adapters.sql.open import Record
from controlplane.domain.loans import BUFFER
from controlplane.ports import Conflict
from tests.adapters.sql.conftest import Rows, Sql
from tests.adapters.sql.lent import CHAT, SLEEPER, booking, entry
from tests.builders import NOW
from tests.databases import REFUSALS, only_postgresql, only_sqlite

MICROS = 1_000_000


@pytest.fixture
def lent(record: Record) -> Record:
    """One loan of two GPUs that stands open, and one of a GPU that was returned."""
    record.ledger.record(booking(entry(gpus=2), entry("chat-8b-s02"), seq=1, at=NOW))
    record.ledger.record(booking(entry("chat-8b-s02", opens=False), seq=2, at=NOW + 60))
    return record


def booked(sql: Sql, loan: str = "%s01%") -> list[tuple[object, ...]]:
    query = "SELECT n, (at - ?) / 1000000, account, gpus FROM loan_entries WHERE loan_id LIKE ? ORDER BY n"
    return sql(query, round(NOW * MICROS), loan)


def test_each_side_of_a_loan_is_booked_when_it_opens_and_again_when_it_closes(lent: Record, sql: Sql) -> None:
    opened = [(0, 0, BUFFER, -2), (1, 0, CHAT, 2)]
    assert booked(sql) == opened
    lent.ledger.record(booking(entry(gpus=2, opens=False), seq=3, at=NOW + 90))
    assert booked(sql) == [*opened, (2, 90, CHAT, -2), (3, 90, BUFFER, 2)]
    assert sql("SELECT DISTINCT sum(gpus) FROM loan_entries GROUP BY loan_id") == [(0,)]


def test_an_instance_has_one_open_loan_and_after_its_return_another(lent: Record, rows: Rows) -> None:
    with pytest.raises(Conflict, match=r"open for this instance|uq_loans_open"):
        lent.ledger.record(booking(entry(gpus=2), seq=3, at=NOW + 90))
    assert rows("loans") == 2
    lent.ledger.record(booking(entry("chat-8b-s02"), seq=4, at=NOW + 95))
    assert rows("loans") == 3


def test_what_was_not_lent_cannot_be_returned(lent: Record, rows: Rows) -> None:
    with pytest.raises(Conflict, match="has no open loan to close"):
        lent.ledger.record(booking(entry("chat-8b-s02", opens=False), seq=3, at=NOW + 90))
    assert rows("loan_entries") == 6


def test_a_clock_that_was_set_back_does_not_keep_a_loan_open(lent: Record, sql: Sql) -> None:
    """The wall clock is nobody's promise; a refused return would stop every cycle until it caught up."""
    lent.ledger.record(booking(entry(gpus=2, opens=False), seq=3, at=NOW - 3600))
    assert lent.ledger.loans() == []
    assert booked(sql)[2:] == [(2, 0, CHAT, -2), (3, 0, BUFFER, 2)]


def test_an_older_leader_that_books_its_entries_itself_does_no_harm(lent: Record, sql: Sql) -> None:
    """Both versions share a database during an upgrade."""
    before = booked(sql)
    sql("INSERT INTO loan_entries SELECT * FROM loan_entries")
    assert booked(sql) == before


LIKE_IT = (
    "INSERT INTO loans SELECT cluster, {id}, run_id, source, run_scope, {lender}, borrower, {instance}, "
    "node, {gpus}, opened_at, opened_by, open_code_id, due_at, {end} FROM loans OPEN"
)
NEW = {"id": "'new'", "instance": "'other'", "lender": "lender", "gpus": "gpus", "end": "NULL, NULL, NULL"}


def of_the_open(statement: str) -> str:
    return statement.replace("OPEN", "WHERE closed_at IS NULL")


def another(**changes: str) -> str:
    """Another loan like the open one."""
    return LIKE_IT.format(**{**NEW, **changes})


REFUSED = {
    "no GPUs": (another(gpus="0"), "gpus"),
    "to itself": (another(lender="borrower"), "borrower"),
    "born closed": (another(end="opened_at, 'demo:capacity:1', 1"), "begins open"),
    "a second one for the instance": (another(instance="instance"), "open for this instance|uq_loans_open"),
    "more GPUs": ("UPDATE loans SET gpus = 3 OPEN", "terms"),
    "another borrower": ("UPDATE loans SET borrower = 'vision' OPEN", "terms"),
    "another instance": ("UPDATE loans SET instance = 'x' OPEN", "terms"),
    "another beginning": ("UPDATE loans SET opened_at = 0 OPEN", "terms"),
    "closed before it opened": (
        "UPDATE loans SET closed_at = opened_at - 1, closed_by = 'x', close_code_id = 1 OPEN",
        "not before it opened",
    ),
    "closed for no reason": (
        "UPDATE loans SET closed_at = opened_at, closed_by = 'x' OPEN",
        "for a reason",
    ),
    "a reason and still open": ("UPDATE loans SET close_code_id = 1 OPEN", "for a reason"),
    "closed by nobody": ("UPDATE loans SET closed_at = opened_at, close_code_id = 1 OPEN", "closed"),
    "opened again": (
        "UPDATE loans SET closed_at = NULL, closed_by = NULL, close_code_id = NULL",
        "closed loan",
    ),
    "closed later": ("UPDATE loans SET closed_at = closed_at + 1 WHERE closed_at > 0", "closed loan"),
    "deleted": ("DELETE FROM loans OPEN", "cannot be|nor any loan"),
    "deleted after its end": (
        "DELETE FROM loans WHERE closed_at > 0",
        "cannot be|nor any loan",
    ),
    "an entry changed": ("UPDATE loan_entries SET gpus = 9 WHERE n = 0", "append only"),
    "an entry deleted": ("DELETE FROM loan_entries WHERE n = 1", "append only"),
    "an entry of other GPUs": (
        "INSERT INTO loan_entries SELECT cluster, loan_id, n, at, account, gpus + 1 FROM loan_entries",
        "what their loan says",
    ),
    "a return of what is still lent": (
        "INSERT INTO loan_entries SELECT cluster, loan_id, 2, opened_at, borrower, -gpus FROM loans OPEN",
        "what their loan says",
    ),
    "a fifth entry": (
        "INSERT INTO loan_entries SELECT cluster, loan_id, 4, opened_at, lender, 0 FROM loans OPEN",
        "what their loan says",
    ),
    "an entry of no loan": (
        "INSERT INTO loan_entries VALUES ('demo', 'none', 0, 0, 'buffer', -1)",
        "what their loan says",
    ),
}


REPLACED = {
    "an open one": (another(instance="instance"), "open for this instance"),
    "one of its id": (another(id="loan_id"), "of this id"),
    "an entry": (
        "INSERT INTO loan_entries SELECT cluster, loan_id, n, at, 'me', gpus FROM loan_entries",
        "what their loan says",
    ),
}
"""What `INSERT OR REPLACE` would put in the place of what stands."""


@pytest.mark.parametrize("case", REFUSED)
def test_another_program_that_would_break_the_ledger_is_refused(lent: Record, sql: Sql, case: str) -> None:
    """No pragma of ours and no library of ours stands in the way: the database itself says no."""
    assert_refused(sql, *REFUSED[case])


@only_sqlite
@pytest.mark.parametrize("case", REPLACED)
def test_on_sqlite_another_program_that_would_replace_what_stands_is_refused(
    lent: Record, sql: Sql, case: str
) -> None:
    statement, words = REPLACED[case]
    assert_refused(sql, statement.replace("INSERT", "INSERT OR REPLACE"), words)


@only_postgresql
@pytest.mark.parametrize("table", ["loan_entries", "loans"])
def test_on_postgresql_nobody_can_empty_the_ledger_at_once(lent: Record, sql: Sql, table: str) -> None:
    """TRUNCATE asks no trigger of a row."""
    assert_refused(sql, f"TRUNCATE {table} CASCADE", "append only")


def assert_refused(sql: Sql, statement: str, words: str) -> None:
    before = [sql("SELECT * FROM loans ORDER BY 1, 2"), sql("SELECT * FROM loan_entries ORDER BY 1, 2, 3")]
    with pytest.raises(REFUSALS, match=words):
        sql(of_the_open(statement))
    assert before == [
        sql("SELECT * FROM loans ORDER BY 1, 2"),
        sql("SELECT * FROM loan_entries ORDER BY 1, 2, 3"),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        another(),
        "UPDATE loans SET due_at = opened_at + 1 OPEN",
        "UPDATE loans SET closed_at = opened_at, closed_by = 'x', close_code_id = 1 OPEN",
    ],
    ids=["a loan", "a due date", "a return"],
)
def test_what_keeps_the_ledger_whole_is_let_through(lent: Record, sql: Sql, statement: str) -> None:
    sql(of_the_open(statement))
    assert sql("SELECT DISTINCT sum(gpus) FROM loan_entries GROUP BY loan_id") == [(0,)]
    assert sql("SELECT count(*) FROM loan_entries") == sql(
        "SELECT 2 * (count(*) + count(closed_at)) FROM loans"
    )


def test_open_loans_stand_in_the_order_of_their_instances(lent: Record) -> None:
    (open_,) = lent.ledger.loans()
    assert (open_.instance, open_.lender, open_.borrower, open_.gpus) == (SLEEPER, BUFFER, CHAT, 2)


def test_the_language_in_which_a_database_sorts_text_changes_no_order_and_no_plan(record: Record) -> None:
    """By bytes `s10@` stands before `s1@`, in a dictionary after it; a plan's hash is of one order."""
    cycle = booking(entry("chat-8b-s10"), entry("chat-8b-s1"), seq=1)
    record.ledger.record(cycle)
    stored = record.reader.cycle(cycle.cycle)
    assert stored is not None
    assert record.reader.plan(cycle.cycle, stored) == cycle.plan
    assert [each.instance for each in record.ledger.loans()] == [each.instance for each in cycle.plan.loans]
