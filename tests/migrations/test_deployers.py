"""Several who migrate one database at once: one does it, the others wait and find it done."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import Engine

from controlplane.adapters.sql import migrate as migrations
from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import ADVISORY_LOCK, head, migrate
from controlplane.adapters.sql.postgresql import Patience
from controlplane.ports import Unavailable
from tests.databases import Database, makes, only_postgresql
from tests.support import eventually

NEW_DATABASES = {"sqlite": 10, "postgresql": 3}
"""The turn that went wrong on SQLite, once in ten, was the change to WAL."""

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def deploy(url: str, patience: Patience, failures: list[Exception]) -> threading.Thread:
    """Somebody who migrates it in the background."""

    def run() -> None:
        engine = open_engine(url, patience=patience)
        try:
            migrate(engine)
        except Exception as error:  # noqa: BLE001 - a thread's failure must reach the test
            failures.append(error)
        finally:
            engine.dispose()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_deployers_at_once_take_turns_from_the_first_byte_of_the_database_on(
    kind: str, request: pytest.FixtureRequest
) -> None:
    new = makes(kind, request, tables=False)
    for _ in range(NEW_DATABASES[kind]):
        with new() as database:
            failures: list[Exception] = []
            for thread in [deploy(database.url, Patience(), failures) for _ in range(4)]:
                thread.join()
            assert failures == []
            assert database.sql("SELECT version_num FROM alembic_version") == [(head(),)]


@only_postgresql
def test_on_postgresql_a_deployer_waits_for_another_one_longer_than_for_any_lock(empty: Database) -> None:
    """While another one is at work it makes no table; then it is its turn."""
    failures: list[Exception] = []
    with closing(psycopg.connect(empty.url)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        thread = deploy(empty.url, Patience(lock_ms=1), failures)
        eventually(lambda: empty.sql(WAITING) == [(1,)], 20.0, because="it does not wait")
        assert empty.sql("SELECT to_regclass('runs')") == [(None,)]
        other.rollback()
        thread.join()
    assert failures == []
    assert empty.sql("SELECT version_num FROM alembic_version") == [(head(),)]


@only_postgresql
def test_on_postgresql_a_deployer_who_waits_in_vain_changes_nothing(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "TURN_S", 1.0)
    failures: list[Exception] = []
    with closing(psycopg.connect(empty.url)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        deploy(empty.url, Patience(), failures).join()
    (failure,) = failures
    assert isinstance(failure, Unavailable)
    assert "lock timeout" in str(failure)
    assert empty.sql("SELECT to_regclass('runs')") == [(None,)]


@only_postgresql
def test_on_postgresql_a_migration_is_not_ended_by_the_patience_for_a_statement(empty: Database) -> None:
    """A large table takes its time; but for somebody's lock it does not wait longer than others do."""
    engine = open_engine(empty.url, patience=Patience(statement_ms=4_321, lock_ms=321))
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    assert settings(engine, names) == ["4321ms", "321ms", "10s"]
    with migrations._migrating(engine) as connection:
        found = [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names]
    assert found == ["0", "321ms", "0"]
    assert settings(engine, names) == ["4321ms", "321ms", "10s"], "and afterwards as before"
    engine.dispose()


def settings(engine: Engine, names: tuple[str, ...]) -> list[str]:
    with engine.connect() as connection:
        return [str(connection.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names]
