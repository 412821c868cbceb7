"""The database file: durable, shared with readers, and never a library's exception across the port."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, OperationalError

from controlplane.adapters.sql import engine as engines
from controlplane.adapters.sql.codec import Damaged
from controlplane.adapters.sql.engine import open_engine, reading, translated, writing
from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.open import Record, open_reader, open_record
from controlplane.adapters.sql.people import place_hold
from controlplane.adapters.sql.reader import Filter
from controlplane.adapters.sql.tables import Base
from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import Hold, Observation
from controlplane.ports import Conflict, InvalidConfig, Unavailable
from tests.adapters.sql.conftest import Rows
from tests.adapters.sql.records import answer, cycle_id, decided, made, weight
from tests.builders import NOW
from tests.databases import only_sqlite
from tests.domain.strategies import observations


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that give up at once, so that a test need not wait."""
    monkeypatch.setattr(engines, "BUSY_S", 0.05)


@only_sqlite
def test_on_sqlite_a_commit_waits_for_the_disk_and_readers_never_block_it(record: Record) -> None:
    with writing(record.engine) as session:
        pragmas = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "recursive_triggers")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 2000,
        "recursive_triggers": 1,
    }


@hypothesis(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seen=observations())
def test_whatever_was_seen_is_read_back_equal(record: Record, seen: Observation) -> None:
    seq = record.ledger.next_seq(seen.kind)
    cycle = decided(seen, seq)
    record.ledger.record(cycle)
    stored = record.reader.cycle(cycle.cycle)
    assert stored is not None
    assert stored.frame == cycle.frame
    assert stored.next_state == cycle.next_state
    assert record.reader.plan(cycle.cycle, stored) == cycle.plan


def test_a_reader_sees_the_last_commit_while_a_writer_is_at_work(record: Record, url: str) -> None:
    record.ledger.record(made(answer(weight())))
    with closing(open_reader(url)) as other, writing(record.engine) as session:
        session.execute(text("UPDATE actions SET level = 1"))
        (seen,) = other.decisions(Filter(), 10)
        assert other.actions(seen.id)[0].action.level == 75
    with closing(open_reader(url)) as other:
        assert other.actions(seen.id)[0].action.level == 1


def test_a_read_session_cannot_change_anything(record: Record, rows: Rows) -> None:
    with pytest.raises(Unavailable, match=r"readonly|read-only"), reading(record.engine) as session:
        session.execute(text("DELETE FROM runs"))
    assert rows("runs") == 1
    assert record.ledger.record(made(answer())) == [], "and the connection writes again afterwards"


@pytest.mark.usefixtures("impatient")
def test_on_sqlite_a_writer_that_meets_another_one_says_so_and_works_again_afterwards(
    file_url: str, file: Path
) -> None:
    """B-149: a second writer waits, and if in vain, nothing happened and nothing is poisoned (B-151)."""
    record = open_record(file_url, "demo")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            record.ledger.record(made(answer(weight())))
        assert record.ledger.unknown_actions() == [], "reading goes on meanwhile"
        other.execute("ROLLBACK")
    assert len(record.ledger.record(made(answer(weight())))) == 1
    record.lease.release()
    record.close()


WRITERS, EACH = 20, 3
T = TypeVar("T")


def test_many_writers_and_a_reader_lose_nothing_and_no_number_is_given_twice(
    record: Record, url: str, rows: Rows
) -> None:
    """B-149: people at the command line and the loop write to one database; all of it arrives."""
    numbers: list[int] = []
    written = threading.Event()

    def write(name: str, engine: Engine) -> None:
        ledger = SqlLedger(engine, record.run)
        for number in range(EACH):
            hold = Hold(None, name, "test", NOW)
            sooner_or_later(partial(place_hold, engine, record.run, f"{name}-{number}", hold))
            numbers.append(sooner_or_later(partial(ledger.next_seq, CycleKind.CAPACITY)))

    def read(name: str, engine: Engine) -> None:
        seen = [0]
        while not written.is_set():
            seen.append(len(SqlLedger(engine, record.run).holds(NOW)))
        assert seen == sorted(seen)

    record.ledger.next_seq(CycleKind.CAPACITY)
    reader = at_once(url, read, "reader")
    writers = [at_once(url, write, f"author-{n}") for n in range(WRITERS)]
    for seq in range(1, 11):
        sooner_or_later(partial(record.ledger.record, made(answer(weight(seq)), seq=seq)))
    failures = [failure for each in writers for failure in each()]
    written.set()
    assert failures + reader() == []
    assert (rows("holds"), rows("acts"), rows("cycles")) == (WRITERS * EACH, WRITERS * EACH, 10)
    assert sorted(numbers) == list(range(2, 2 + WRITERS * EACH))


def sooner_or_later(write: Callable[[], T], tries: int = 10) -> T:
    """What a writer does who is told that the database is busy: nothing happened, so it is done again."""
    for _ in range(tries):
        with suppress(Unavailable):
            return write()
    return write()


def at_once(url: str, work: Callable[[str, Engine], None], name: str) -> Callable[[], list[Exception]]:
    """Work in a thread with connections of its own; what is answered waits for its end, and says how it
    failed."""
    failures: list[Exception] = []

    def run() -> None:
        engine = open_engine(url)
        try:
            work(name, engine)
        except Exception as error:  # noqa: BLE001 - a thread's failure must reach the test
            failures.append(error)
        finally:
            engine.dispose()

    thread = threading.Thread(target=run, name=name)
    thread.start()

    def ended() -> list[Exception]:
        thread.join()
        return failures

    return ended


@only_sqlite
def test_on_sqlite_a_full_disk_is_unavailable_and_leaves_nothing(record: Record, rows: Rows) -> None:
    with record.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    with writing(record.engine) as session:
        session.execute(text(f"PRAGMA max_page_count={pages}"))
    with pytest.raises(Unavailable, match="full"):
        record_many(record)
    assert rows("frames") == rows("cycles") == rows("decisions") < 50


def record_many(record: Record) -> None:
    for seq in range(1, 51):
        record.ledger.record(made(answer(weight()), seq=seq))


def test_reading_creates_no_file_and_no_folder(file: Path, file_url: str) -> None:
    with pytest.raises(InvalidConfig, match="does not exist"):
        open_reader(file_url)
    assert not file.parent.exists()


def test_a_file_that_is_no_database_is_said_to_be_none(file: Path, file_url: str) -> None:
    file.parent.mkdir()
    file.write_text("pools: []\n" * 200)
    with pytest.raises(Unavailable, match="not a database"):
        open_reader(file_url)


def test_every_error_of_an_sqlite_file_names_it(file: Path, file_url: str) -> None:
    file.parent.mkdir()
    file.write_text("pools: []\n" * 200)
    with pytest.raises(Unavailable, match=f"the database {file} did not do it: file is not a database"):
        open_reader(file_url)
    file.write_text("")
    with pytest.raises(InvalidConfig, match=f"the database {file} is at revision none, this version needs"):
        open_reader(file_url)
    engine = open_engine(file_url)
    said = f"the database {file} did not do it: a number is too large"
    with pytest.raises(Unavailable, match=said), reading(engine) as session:
        session.execute(text("SELECT :n"), {"n": 2**80})
    engine.dispose()


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            OperationalError("SELECT 1", {}, Exception("no route\n  to host\n")),
            "did not do it: no route to host",
        ),
        (IntegrityError("SELECT 1", {}, Exception("duplicate key \n")), "refused it: duplicate key"),
        (LookupError("'x' is none \n"), "a word that this version does not know: 'x' is none"),
    ],
)
def test_a_driver_s_own_words_are_one_line_without_blanks_at_its_end(raised: Exception, said: str) -> None:
    engine = open_engine("sqlite://")
    with pytest.raises((Unavailable, Conflict, Damaged)) as caught, translated(engine):
        raise raised
    assert str(caught.value).endswith(said)
    assert ":memory:" in str(caught.value)


@pytest.mark.parametrize("create", [True, False])
def test_a_database_that_is_a_folder_or_has_no_possible_name_is_refused(
    tmp_path: Path, *, create: bool
) -> None:
    for path, said in ((tmp_path, "is no plain file"), (tmp_path / ("x" * 300), "cannot be used: File name")):
        with pytest.raises(InvalidConfig, match=f"database: {path} {said}"):
            open_engine(f"sqlite:///{path}", create=create)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_record_that_would_end_with_its_process_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="SQLite file"):
        open_record(url, "demo")


@pytest.mark.parametrize("url", ["", "trimtab.db", "mysql://host/db", "://"])
def test_what_is_no_url_of_ours_is_refused_with_an_example_or_the_names_of_those(url: str) -> None:
    with pytest.raises(InvalidConfig, match="sqlite"):
        open_engine(url)


def test_a_source_that_does_not_exist_is_refused_with_those_that_do(file_url: str, file: Path) -> None:
    with pytest.raises(InvalidConfig, match="live, backfill, backtest, demo"):
        open_record(file_url, "demo", "shadow")
    assert not file.exists()


SECRET = "hunter2-correct-horse"


@pytest.mark.parametrize("table", sorted(Base.metadata.tables))
def test_no_table_has_room_for_a_url_a_password_or_a_token_of_access(table: str) -> None:
    """Where things are, and how to get in, stands in fleet.yaml alone; `token` is the lease's number."""
    columns = set(Base.metadata.tables[table].columns.keys())
    assert not {
        name for name in columns if any(word in name for word in ("url", "password", "secret", "key"))
    }


def test_the_url_of_the_database_does_not_reach_the_disk(file_url: str, file: Path) -> None:
    record = open_record(f"{file_url}?cached_statements={len(SECRET)}", "demo")
    record.ledger.record(made(answer(weight())))
    record.close()
    record.lease.release()
    on_disk = b"".join(part.read_bytes() for part in sorted(file.parent.iterdir()))
    assert b"weights" in on_disk
    assert b"cached_statements" not in on_disk


@pytest.mark.parametrize("url", [f"mysql://u:{SECRET}@db/x", f"postgresql://u:{SECRET}@127.0.0.1:1/x"])
def test_no_error_repeats_a_password(url: str) -> None:
    with pytest.raises((InvalidConfig, Unavailable)) as caught:
        open_reader(url)
    assert SECRET not in str(caught.value)


def test_a_refused_row_is_a_conflict_and_names_no_parameters(record: Record) -> None:
    record.ledger.record(made(answer()))
    with pytest.raises(Conflict) as caught:
        record.ledger.record(made(answer()))
    assert "unique constraint" in str(caught.value).lower()
    assert "INSERT" not in str(caught.value)
    assert "(demo, weights, 1)" not in str(caught.value)


def test_a_cycle_that_is_not_there_is_none(record: Record) -> None:
    assert record.reader.cycle(cycle_id(99)) is None
