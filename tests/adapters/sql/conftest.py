"""A record on either database, and what looks at it from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.databases import Database, Sql, database, databases, empty, kind, migrated, record, sql, url

__all__ = ["Rows", "Sql", "database", "databases", "empty", "kind", "migrated", "record", "sql", "url"]

Rows = Callable[[str], int]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite file that is not there yet, in a folder that is not there yet."""
    return tmp_path / "var" / "trimtab.db"


@pytest.fixture
def file_url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def rows(database: Database) -> Rows:
    """How many rows a table has."""
    return database.rows
