"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}

An old leader may still write while this applies: expand first (new columns nullable or with a
default), contract in a later release. Keep it short: locks wait two seconds at most, and a
statement runs five. Test `downgrade` with data in the tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
