"""Migrations: up, down and up again with data in it, and the same schema as the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from controlplane.adapters.sql.engine import open_engine, reading, writing
from controlplane.adapters.sql.migrate import current, downgrade, head, migrate, require_head, scripts
from controlplane.adapters.sql.open import open_record
from controlplane.adapters.sql.tables import APPEND_ONLY, Base
from controlplane.ports import InvalidConfig, Unavailable
from tests.adapters.sql.history import write


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'trimtab.db'}"


def test_an_empty_database_comes_to_the_head_and_stays_there(url: str) -> None:
    engine = open_engine(url)
    assert current(engine) is None
    migrate(engine)
    assert current(engine) == head()
    migrate(engine)
    assert current(engine) == head()
    engine.dispose()


def test_the_migrated_schema_is_the_one_the_tables_describe(url: str) -> None:
    engine = open_engine(url)
    migrate(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_down_and_up_again_with_data_in_it(url: str) -> None:
    record = open_record(url, "demo")
    write(record, 4)
    assert len(record.reader.cycle_ids()) == 4
    downgrade(record.engine, "base")
    assert current(record.engine) is None
    migrate(record.engine)
    assert record.reader.cycle_ids() == []
    record.lease.release()
    record.close()


def test_a_newer_database_is_refused_in_words(url: str) -> None:
    record = open_record(url, "demo")
    with writing(record.engine) as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (migrate, require_head):
        with pytest.raises(InvalidConfig, match="revision 9999"):
            use(record.engine)
    record.lease.release()
    record.close()


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize("change", ["UPDATE {} SET detail = 'x'", "DELETE FROM {}"])
def test_what_was_appended_stays(url: str, table: str, change: str) -> None:
    record = open_record(url, "demo")
    write(record, 1)
    with writing(record.engine) as session:
        session.execute(
            text(
                "INSERT INTO acts (cluster, at, author, act, subject, detail) "
                "VALUES ('demo', 1, 'a', 'b', 'c', '')"
            )
        )
    with pytest.raises(Unavailable, match=f"{table} is append-only"), writing(record.engine) as session:
        session.execute(text(change.format(table)))
    with reading(record.engine) as session:
        assert session.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608
    record.lease.release()
    record.close()


def test_a_state_that_no_action_has_is_refused(url: str) -> None:
    record = open_record(url, "demo")
    write(record, 1)
    with pytest.raises(Unavailable, match="CHECK"), writing(record.engine) as session:
        session.execute(text("UPDATE actions SET state = 'done'"))
    with writing(record.engine) as session:
        session.execute(text("UPDATE actions SET state = 'reverted'"))
    record.lease.release()
    record.close()


def test_migrations_are_found_beside_the_package() -> None:
    assert (scripts() / "env.py").is_file()
    assert (scripts() / "NOTES.md").read_text("utf-8").count(f"| {head()} |") == 1
