"""Looking for damage in a database: the file, rows without parents, loans whose
entries do not sum to zero, tables that are not as they should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine

from controlplane.adapters.sql.engine import translated
from controlplane.adapters.sql.loans import broken
from controlplane.adapters.sql.migrate import require_head
from controlplane.adapters.sql.tables import Base


def find_problems(engine: Engine) -> list[str]:
    """What is wrong, a sentence each; empty where nothing is. Raises InvalidConfig for a database of
    another version, Unavailable where it cannot be read at all."""
    require_head(engine)
    with translated(engine), engine.connect() as connection:
        return [*_file(connection), *_orphans(connection), *_ledger(connection), *_schema(connection)]


def _file(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (line,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if line != "ok":
                yield f"the file: {line}"


def _orphans(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"{table}: row {row} has no parent in {parent}"


def _ledger(connection: Connection) -> Iterator[str]:
    for loan_id in connection.scalars(broken()):
        yield f"the ledger: loan {loan_id} lacks an entry, or its entries do not sum to zero"


def _schema(connection: Connection) -> Iterator[str]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    for difference in compare_metadata(context, Base.metadata):
        yield f"the tables: {_words(difference)}"


def _words(difference: Any) -> str:
    """Alembic's finding: what would have to be done, and to what."""
    first = difference[0] if isinstance(difference, list) else difference
    return f"{str(first[0]).replace('_', ' ')} {first[1]}"
