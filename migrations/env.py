"""Runs migrations on the connection that `controlplane.adapters.sql.migrate` hands in, inside its
transaction: all of them happen, or none."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from controlplane.adapters.sql.migrate import BrokenMigration
from controlplane.adapters.sql.tables import Base


def check_foreign_keys(connection: Connection) -> None:
    """SQLite does not look at old rows when a table is built anew, so nobody else would notice."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise BrokenMigration(f"the migration leaves rows without their parents: {broken[:5]}")


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
    check_foreign_keys(connection)
