"""A record in an empty folder, and what looks at its file from outside."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import migrate
from controlplane.adapters.sql.open import Record, open_record

Sql = Callable[..., list[tuple[object, ...]]]
Rows = Callable[[str], int]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "var" / "trimtab.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables and nothing in them: copying it is quicker than migrating each time."""
    path = tmp_path_factory.mktemp("migrated") / "trimtab.db"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
def record(url: str, file: Path, migrated: Path) -> Iterator[Record]:
    file.parent.mkdir()
    shutil.copyfile(migrated, file)
    opened = open_record(url, "demo")
    yield opened
    opened.lease.release()
    opened.close()


@pytest.fixture
def rows(sql: Sql) -> Rows:
    """How many rows a table has."""

    def count(table: str) -> int:
        ((number,),) = sql(f"SELECT count(*) FROM {table}")  # noqa: S608 - the test's own word
        assert isinstance(number, int)
        return number

    return count


@pytest.fixture
def sql(file: Path) -> Sql:
    """Another program at the same file: no pragma of ours, no library of ours."""

    def execute(statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    return execute
