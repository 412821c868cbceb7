"""Pages: alerts that somebody was told of, one row from start to end however often it was told.

Nothing that an older version knows is touched, so an old leader may write while this applies. A
page names the decision that stands nearest by its id, as text: decisions are pruned earlier than
pages. The way down drops the table, and with it all pages.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table and what its lists are read along."""
    op.create_table(
        "pages",
        _text("cluster"),
        _text("fingerprint"),
        _whole("starts_at"),
        *map(_text, ("alertname", "severity", "pool")),
        sa.Column("labels", sa.JSON(), nullable=False),
        *map(_text, ("summary", "runbook")),
        sa.Column("status", sa.String(16), nullable=False),
        *map(_whole, ("first_seen_at", "last_seen_at")),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        _whole("notifications"),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "fingerprint", "starts_at", name=op.f("pk_pages")),
        sa.CheckConstraint("status IN ('firing', 'resolved')", name=op.f("ck_pages_status")),
    )
    op.create_index(op.f("ix_pages_cluster_starts_at"), "pages", ["cluster", "starts_at"])
    op.create_index(op.f("ix_pages_cluster_pool_starts_at"), "pages", ["cluster", "pool", "starts_at"])


def downgrade() -> None:
    """Pages are lost; nothing else refers to them."""
    op.drop_table("pages")  # with its indexes


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _whole(name: str) -> sa.Column[int]:
    """A count, or an instant in UTC microseconds."""
    return sa.Column(name, sa.BigInteger(), nullable=False)
