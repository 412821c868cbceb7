"""A database on either kind of server, without tables or with them."""

from __future__ import annotations

from tests.databases import database, databases, empty, kind, migrated, record, sql

__all__ = ["database", "databases", "empty", "kind", "migrated", "record", "sql"]
