"""What a session may do and how long it waits: said by the database itself, on a live connection."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import Engine, text

from controlplane.adapters.sql.engine import open_engine, reading, writing
from controlplane.adapters.sql.open import Record, begin_record, open_reader
from controlplane.adapters.sql.people import place_hold
from controlplane.adapters.sql.postgresql import Patience
from controlplane.adapters.sql.reader import Filter
from controlplane.adapters.sql.scope import Run
from controlplane.domain.ids import Source
from controlplane.domain.observation import Hold
from controlplane.ports import InvalidConfig, Unavailable
from tests.adapters.sql.conftest import Rows
from tests.adapters.sql.lent import booking, entry
from tests.adapters.sql.records import answer, made, weight
from tests.builders import NOW
from tests.databases import Database, HeldLease, Sql, only_postgresql
from tests.postgres import Postgres
from tests.support import eventually

SECRET = "hunter2-correct-horse"


def told(engine: Engine, *names: str) -> list[str]:
    """Settings of a connection that writes."""
    with writing(engine) as session:
        return [str(session.scalar(text(f"SHOW {name}"))) for name in names]


@only_postgresql
def test_on_postgresql_a_commit_waits_for_the_disk_and_nothing_waits_without_end(
    database: Database, sql: Sql
) -> None:
    """Also where the database is set to be quicker than that."""
    (name,) = sql("SELECT current_database()")[0]
    sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert sql("SHOW synchronous_commit") == [("off",)]
    engine = open_engine(database.url)
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    assert told(engine, "synchronous_commit", *names) == ["on", "5s", "2s", "10s"]
    with engine.connect() as connection:
        chosen = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    waited = [chosen[name] for name in ("connect_timeout", "tcp_user_timeout", "keepalives_idle")]
    assert waited == ["3", "8000", "2"]
    engine.dispose()


def test_reading_sees_one_instant_and_writing_sees_what_is_there_now(record: Record) -> None:
    record.ledger.record(made(answer(weight())))
    count = text("SELECT count(*) FROM cycles")
    with reading(record.engine) as session:
        assert session.scalar(count) == 1
        record.ledger.record(made(answer(weight()), seq=2))
        assert session.scalar(count) == 1
    with reading(record.engine) as session:
        assert session.scalar(count) == 2


@pytest.mark.parametrize(
    "statement", ["DELETE FROM runs", "INSERT INTO reason_codes VALUES (99, 'x')", "CREATE TABLE x (n INT)"]
)
def test_a_write_in_a_session_that_reads_is_refused_by_the_database(
    record: Record, rows: Rows, statement: str
) -> None:
    with writing(record.engine) as session:
        session.execute(text("UPDATE runs SET code_version = 'y'"))
    with pytest.raises(Unavailable, match=r"readonly|read-only"), reading(record.engine) as session:
        session.execute(text(statement))
    assert (rows("runs"), rows("reason_codes")) == (1, 0)
    assert record.ledger.record(made(answer())) == [], "and the connection writes again afterwards"


@pytest.fixture
def hurried(database: Database) -> Iterator[Engine]:
    """An engine that waits for little."""
    patience = Patience(statement_ms=300, lock_ms=100, idle_ms=300, connect_s=2, answer_s=1.5)
    engine = open_engine(database.url, patience=patience)
    yield engine
    engine.dispose()


def assert_ends(engine: Engine, statement: str, words: str) -> None:
    """As Unavailable, in words without the statement and its values; then the engine works again."""
    with pytest.raises(Unavailable, match=words) as caught, writing(engine) as session:
        session.execute(text(statement), {"name": SECRET})
    said = str(caught.value)
    assert said.startswith("the database postgresql+psycopg://")
    assert SECRET not in said
    assert statement.split(maxsplit=1)[0] not in said
    with writing(engine) as session:
        assert session.scalar(text("SELECT 1")) == 1


@only_postgresql
def test_on_postgresql_a_statement_that_takes_too_long_is_ended(hurried: Engine) -> None:
    assert_ends(hurried, "SELECT pg_sleep(60), :name", "statement timeout")


@only_postgresql
def test_on_postgresql_a_lock_that_another_one_holds_is_not_waited_for_without_end(
    hurried: Engine, database: Database
) -> None:
    with psycopg.connect(database.url) as other:
        other.execute("LOCK TABLE runs")
        assert_ends(hurried, "UPDATE runs SET run_id = :name", "lock timeout")


@only_postgresql
def test_on_postgresql_a_value_that_is_none_is_refused_without_repeating_it(hurried: Engine) -> None:
    assert_ends(hurried, "SELECT :name WHERE 1 / 0 = 1", "division by zero")
    assert_ends(hurried, "UPDATE nowhere SET x = :name", 'relation "nowhere" does not exist')


@only_postgresql
def test_on_postgresql_a_server_that_stands_still_is_given_up_and_works_again_later(hurried: Engine) -> None:
    """None of its own timeouts ends what it does not do."""
    with pytest.raises(Unavailable, match=r"no answer within 1\.5 s"):
        ask_whom_somebody_stopped(hurried)
    with writing(hurried) as session:
        assert session.scalar(text("SELECT 1")) == 1


def ask_whom_somebody_stopped(engine: Engine) -> None:
    with writing(engine) as session:
        pid = int(str(session.scalar(text("SELECT pg_backend_pid()"))))
        os.kill(pid, signal.SIGSTOP)
        try:
            session.execute(text("SELECT 1"))
        finally:
            os.kill(pid, signal.SIGCONT)


@only_postgresql
def test_on_postgresql_who_stands_still_in_a_transaction_holds_nobody_up(
    hurried: Engine, record: Record, sql: Sql
) -> None:
    with pytest.raises(Unavailable, match="idle-in-transaction timeout"):
        change_the_holder_slowly(hurried, sql)
    assert sql("SELECT holder FROM leases") == [("next",)]


def change_the_holder_slowly(engine: Engine, sql: Sql) -> None:
    with writing(engine) as session:
        session.execute(text("UPDATE leases SET holder = 'frozen'"))
        eventually(lambda: sql(IN_TRANSACTION) == [(0,)], 20.0, because="its lock stays")
        sql("UPDATE leases SET holder = 'next'")
        session.execute(text("SELECT 1"))


IN_TRANSACTION = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'"""


@pytest.fixture
def role(postgres: Postgres, database: Database) -> Iterator[str]:
    """Somebody who may log in, and nothing else."""
    postgres.run("CREATE ROLE somebody LOGIN")
    yield "somebody"
    database.sql("DROP OWNED BY somebody")
    postgres.run("DROP ROLE somebody")


def as_role(database: Database, role: str) -> str:
    return database.url.replace("//trimtab@", f"//{role}:{SECRET}@")


@only_postgresql
def test_on_postgresql_a_controller_needs_rights_to_rows_alone_where_somebody_else_migrated(
    database: Database, role: str
) -> None:
    with pytest.raises(Unavailable, match="permission denied") as caught:
        begin_record(open_engine(as_role(database, role)), HeldLease(), Run("demo", "r", Source.LIVE))
    assert SECRET not in str(caught.value)
    database.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    database.sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    record = begin_record(open_engine(as_role(database, role)), HeldLease(), Run("demo", "r", Source.LIVE))
    with closing(record):
        assert len(record.ledger.record(made(answer(weight())))) == 1
        record.ledger.record(booking(entry()))
        place_hold(record.engine, record.run, "h1", Hold(None, "anna", "test", NOW))
        assert len(record.reader.decisions(Filter(), 10)) == 1


@only_postgresql
def test_on_postgresql_whoever_reads_needs_rights_to_read_alone(
    database: Database, record: Record, role: str
) -> None:
    record.ledger.record(made(answer(weight())))
    database.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    with closing(open_reader(as_role(database, role))) as reader:
        assert len(reader.decisions(Filter(), 10)) == 1


@only_postgresql
def test_on_postgresql_a_database_that_is_not_there_or_not_migrated_is_named_without_a_password(
    empty: Database, postgres: Postgres
) -> None:
    for user, name in (("trimtab", "nowhere"), ("stranger", "postgres")):
        url = f"postgresql://{user}:{SECRET}@/{name}?host={postgres.folder}&password={SECRET}"
        with pytest.raises(Unavailable, match="does not exist") as caught:
            open_reader(url)
        assert SECRET not in str(caught.value)
    with pytest.raises(InvalidConfig, match="is at revision none, this version needs"):
        open_reader(empty.url)
    assert empty.sql("SELECT to_regclass('runs')") == [(None,)], "reading creates nothing"
