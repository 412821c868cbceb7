"""What a database itself says it holds, told by its own catalogue."""

from __future__ import annotations

from tests.databases import Database


def schema(database: Database) -> dict[str, list[str]]:
    """Tables and indexes with their lines in order of the alphabet: order of constraints is no matter."""
    found = (
        _sqlite(database, "table", "index") if database.file else _postgresql(database, COLUMNS, CONSTRAINTS)
    )
    return {
        name: sorted(line.strip().rstrip(",") for line in text.splitlines())
        for name, text in found.items()
        if not name.startswith("alembic_version")
    }


def tables(database: Database) -> set[str]:
    """Names of tables and triggers, and of PostgreSQL's functions."""
    found = _sqlite(database, "table", "trigger") if database.file else _postgresql(database, *ALL)
    return {name for name in found if not name.startswith("alembic_version")}


def promises(database: Database) -> dict[str, str]:
    """Triggers, their functions, and indexes, word by word: what is lost where a table is built anew."""
    if database.file:
        return _sqlite(database, "trigger", "index")
    return _postgresql(database, INDEXES, TRIGGERS, FUNCTIONS)


def triggers(database: Database) -> set[str]:
    """Names of triggers."""
    return set(_sqlite(database, "trigger") if database.file else _postgresql(database, TRIGGERS))


COLUMNS = """SELECT table_name || '.' || column_name, concat_ws(' ', data_type, character_maximum_length,
    is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public'"""
CONSTRAINTS = """SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
TRIGGERS = "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
FUNCTIONS = """SELECT proname, pg_get_functiondef(oid) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace"""
TABLES = """SELECT relname, '' FROM pg_class
    WHERE relkind IN ('r', 'S') AND relnamespace = 'public'::regnamespace"""
ALL = (TABLES, TRIGGERS, FUNCTIONS)


def _sqlite(database: Database, *types: str) -> dict[str, str]:
    rows = database.sql("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {str(name): str(text) for type_, name, text in rows if type_ in types}


def _postgresql(database: Database, *queries: str) -> dict[str, str]:
    return {str(name): str(text) for query in queries for name, text in database.sql(query)}
