"""Bring a database to this version's schema, and refuse one that is newer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, inspect, text

from controlplane.adapters.sql.engine import place, translated
from controlplane.adapters.sql.postgresql import unhurried
from controlplane.ports import Conflict, InvalidConfig, Unavailable

ADVISORY_LOCK = 7_265_742
"""PostgreSQL: two deployers take turns. On SQLite the write lock does the same."""

TURN_S = 60.0
"""How long a deployer waits for another one's migration, seconds: it may move many rows."""


class BrokenMigration(Exception):
    """A migration leaves the data in a state that it must not be in."""


def scripts() -> Path:
    """Where the migrations are: shipped inside the package, or beside it in a checkout."""
    spec = find_spec("controlplane")
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - it is running
    package = Path(spec.origin).parent
    shipped = package / "_shipped" / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def head() -> str:
    """The newest revision that this version knows."""
    return str(ScriptDirectory(str(scripts())).get_current_head())


def current(engine: Engine) -> str | None:
    """The database's revision; None while it is empty. Raises Unavailable."""
    with translated(engine), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade to `revision`. Raises InvalidConfig for a newer database, else Unavailable. One that is there
    already is only looked at: that needs no turn, and no right to change tables."""
    if _require_known(engine) == head() and revision == "head":
        return
    with _migrating(engine) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Go back to `revision`; what it does not know is lost. Raises as `migrate`."""
    _require_known(engine)
    with _migrating(engine) as connection:
        command.downgrade(_config(connection), revision)


def require_head(engine: Engine) -> None:
    """Refuse to read a database of another version. Raises InvalidConfig or Unavailable."""
    found, needed = current(engine) or "none", head()
    if found != "none":
        _require_known(engine)
    if found != needed:
        raise InvalidConfig([f"{_at(engine, found)}, this version needs {needed}: `trimtab db upgrade`"])


def _require_known(engine: Engine) -> str | None:
    """The database's revision, if this version knows it. Raises InvalidConfig."""
    found = current(engine)
    if found is None:
        tables = _tables(engine)
        found = current(engine)  # again, after the tables: another deployer may have made them just now
    if found is None:
        _require_ours(engine, tables)
        return None
    try:
        ScriptDirectory(str(scripts())).get_revision(found)
    except CommandError:
        raise InvalidConfig(
            [f"{_at(engine, found)}, unknown to this version: a newer one wrote it"]
        ) from None
    return found


def _at(engine: Engine, found: str) -> str:
    return f"the database {place(engine)} is at revision {found}"


def _tables(engine: Engine) -> set[str]:
    with translated(engine), engine.connect() as connection:
        return set(inspect(connection).get_table_names()) - {"alembic_version"}


def _require_ours(engine: Engine, tables: set[str]) -> None:
    """A database with tables and without a revision belongs to somebody else."""
    if tables:
        named = ", ".join(sorted(tables)[:3])
        raise InvalidConfig(
            [f"the database {place(engine)} holds somebody else's tables ({named}): name another one"]
        )


@contextmanager
def _migrating(engine: Engine) -> Iterator[Connection]:
    """One transaction for all of it. SQLite's foreign keys are checked at its end (`env.py`) and not
    meanwhile: a table is changed by building it anew, and dropping the old one would cascade."""
    chosen = engine.execution_options(write=True, foreign_keys=False, busy_s=TURN_S)
    try:
        with translated(engine), chosen.connect() as connection:
            if connection.dialect.name == "postgresql":
                unhurried(connection)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    _take_turns(connection)
                yield connection
    except (CommandError, BrokenMigration, Conflict) as error:
        raise Unavailable(f"the migration failed, and nothing changed in {place(engine)}: {error}") from error


def _take_turns(connection: Connection) -> None:
    """A migration takes as long as it takes, and waits for another deployer's; but for a table's lock it
    waits as briefly as anybody, since all who come after would wait behind it."""
    patience = connection.scalar(text("SHOW lock_timeout"))
    for name, value in (
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("lock_timeout", f"{TURN_S:.0f}s"),
    ):
        _set(connection, name, value)
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
    _set(connection, "lock_timeout", str(patience))


def _set(connection: Connection, name: str, value: str) -> None:
    """Until the transaction ends."""
    connection.execute(text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value})


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
