"""A database for one test, of each kind that a record may lie in."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import migrate
from controlplane.adapters.sql.open import Record, begin_record, open_record
from controlplane.adapters.sql.scope import Run
from controlplane.domain.ids import Source
from tests.postgres import TEMPLATE, Postgres

KINDS = ("sqlite", "postgresql")
only_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
only_postgresql = pytest.mark.parametrize("kind", ["postgresql"])

REFUSALS = (sqlite3.IntegrityError, psycopg.IntegrityError)
"""What a database says of a row that it does not take."""

Row = tuple[object, ...]
Sql = Callable[..., list[Row]]


@dataclass(frozen=True, slots=True)
class Database:
    """Where it is. `sql`: another program at it, with no setting of ours and no library of ours; a `?` is a
    value, and each call is a transaction."""

    kind: str
    url: str
    sql: Sql
    file: Path | None = None

    def rows(self, table: str) -> int:
        """How many a table has."""
        ((number,),) = self.sql(f"SELECT count(*) FROM {table}")  # noqa: S608 - the test's own word
        assert isinstance(number, int)
        return number


Databases = Callable[[], AbstractContextManager[Database]]


@dataclass(slots=True)
class HeldLease:
    """The right to act, which nobody else wants."""

    ours: bool = True

    def acquire(self) -> bool:
        return self.ours

    def held(self) -> bool:
        return self.ours

    def release(self) -> None:
        self.ours = False


def led(database: Database, run_id: str = "test", source: Source = Source.LIVE) -> Record:
    """Its record, led by this process. The caller closes it (`closed`)."""
    if database.file is not None:
        return open_record(database.url, "demo", source)
    return begin_record(open_engine(database.url), HeldLease(), Run("demo", run_id, source))


def closed(record: Record) -> None:
    """Give up the lead and every connection."""
    record.lease.release()
    record.close()


def in_file(file: Path) -> Database:
    """An SQLite database."""

    def execute(statement: str, *values: object) -> list[Row]:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    return Database("sqlite", f"sqlite:///{file}", execute, file)


def at_server(server: Postgres, name: str) -> Database:
    """A database of a server."""

    def execute(statement: str, *values: object) -> list[Row]:
        with closing(server.connect(name)) as connection:
            if values:
                cursor = connection.execute(statement.replace("%", "%%").replace("?", "%s").encode(), values)
            else:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return Database("postgresql", server.url(name), execute)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tables and nothing in them: copying it is quicker than migrating each time."""
    path = tmp_path_factory.mktemp("migrated") / "trimtab.db"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


def makes(kind: str, request: pytest.FixtureRequest, *, tables: bool) -> Databases:
    """Makes databases of a kind, each for the length of a `with` block."""
    if kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        return lambda: _at(server, TEMPLATE if tables else "template0")
    template: Path | None = request.getfixturevalue("migrated") if tables else None
    return lambda: _in_folder(template)


@contextmanager
def _at(server: Postgres, template: str) -> Iterator[Database]:
    name = server.create(template)
    try:
        yield at_server(server, name)
    finally:
        server.start()  # a test may have stopped it
        server.drop(name)


@contextmanager
def _in_folder(template: Path | None) -> Iterator[Database]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "trimtab.db"
        if template is not None:
            shutil.copyfile(template, file)
        yield in_file(file)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each test runs on both; what is of one alone is marked `only_…`, and says so in its name."""
    return str(request.param)


@pytest.fixture
def empty(kind: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database without any table; SQLite's has no file yet."""
    with makes(kind, request, tables=False)() as made:
        yield made


@pytest.fixture
def databases(kind: str, request: pytest.FixtureRequest) -> Databases:
    """Makes databases with tables and nothing in them."""
    return makes(kind, request, tables=True)


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A database with tables and nothing in them."""
    with databases() as made:
        yield made


@pytest.fixture
def record(database: Database) -> Iterator[Record]:
    """Its record, led by this process."""
    opened = led(database)
    yield opened
    closed(opened)


@pytest.fixture
def url(database: Database) -> str:
    return database.url


@pytest.fixture
def sql(database: Database) -> Sql:
    """Another program at the same database."""
    return database.sql
