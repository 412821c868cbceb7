"""Nobody puts another action, or another event of one, in the place of what stands.

On SQLite `INSERT OR REPLACE` deletes without asking delete triggers, unless the connection says otherwise:
history could be written anew, and an action return to a state that it had left. PostgreSQL has no such
statement. Only triggers are added: no table is built anew, and an old leader never replaces.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQLITE_UP = (
    """CREATE TRIGGER action_events_no_replace BEFORE INSERT ON action_events
    WHEN EXISTS (SELECT 1 FROM action_events WHERE cluster = NEW.cluster AND kind = NEW.kind
        AND seq = NEW.seq AND pool = NEW.pool AND ordinal = NEW.ordinal AND n = NEW.n)
    BEGIN SELECT RAISE(ABORT, 'action events are append only: one cannot be replaced'); END""",
    """CREATE TRIGGER actions_no_replace BEFORE INSERT ON actions
    WHEN EXISTS (SELECT 1 FROM actions WHERE cluster = NEW.cluster AND kind = NEW.kind
        AND seq = NEW.seq AND pool = NEW.pool AND ordinal = NEW.ordinal)
    BEGIN SELECT RAISE(ABORT, 'an action cannot be replaced'); END""",
)


def upgrade() -> None:
    """Two triggers on SQLite."""
    if op.get_context().dialect.name == "sqlite":
        for statement in SQLITE_UP:
            op.execute(statement)


def downgrade() -> None:
    """They go; no row is touched."""
    if op.get_context().dialect.name == "sqlite":
        for statement in SQLITE_UP:
            op.execute(f"DROP TRIGGER {statement.split()[2]}")
