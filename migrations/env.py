"""Runs migrations on the connection that `controlplane.adapters.sql.migrate` hands in."""

from __future__ import annotations

from alembic import context

from controlplane.adapters.sql.tables import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
