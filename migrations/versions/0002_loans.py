"""The ledger of loans, by double entry.

A row a loan, of which at most one stands open for an instance, and two entries for each time that GPUs
change hands: what one account loses another gains. Entries are never changed, and neither is a loan
that is closed. Words in this file are literal.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SOURCES = ("live", "backfill", "backtest", "demo")


def upgrade() -> None:
    """Both tables and the triggers that keep their promises."""
    _loans()
    _entries()
    chosen = POSTGRESQL_TRIGGERS if op.get_context().dialect.name == "postgresql" else SQLITE_TRIGGERS
    for statement in chosen:
        op.execute(statement)


def downgrade() -> None:
    """Without them no loan is known any more."""
    op.drop_table("loan_entries")
    op.drop_table("loans")
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_closed_loan()")


def _loans() -> None:
    op.create_table(
        "loans",
        *map(_text, ("cluster", "loan_id", "run_id")),
        sa.Column("source", sa.String(16), nullable=False),
        *map(_text, ("run_scope", "lender", "borrower", "instance", "node")),
        *map(_whole, ("gpus", "opened_at")),
        _text("opened_by"),
        sa.Column("open_code_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.BigInteger()) for name in ("due_at", "closed_at")),
        sa.Column("closed_by", sa.Text()),
        sa.Column("close_code_id", sa.Integer()),
        sa.PrimaryKeyConstraint("cluster", "loan_id", name=op.f("pk_loans")),
        sa.ForeignKeyConstraint(
            ["cluster", "run_id", "source"],
            ["runs.cluster", "runs.run_id", "runs.source"],
            name=op.f("fk_loans_cluster_run_id_source"),
        ),
        *(
            sa.ForeignKeyConstraint([name], ["reason_codes.code_id"], name=op.f(f"fk_loans_{name}"))
            for name in ("open_code_id", "close_code_id")
        ),
        sa.CheckConstraint(
            "source IN ({})".format(", ".join(f"'{word}'" for word in SOURCES)), name=op.f("ck_loans_source")
        ),
        sa.CheckConstraint("gpus > 0", name=op.f("ck_loans_gpus")),
        sa.CheckConstraint("lender <> borrower", name=op.f("ck_loans_borrower")),
        sa.CheckConstraint("(closed_at IS NULL) = (closed_by IS NULL)", name=op.f("ck_loans_closed")),
    )
    op.create_index(
        "uq_loans_open",
        "loans",
        ["cluster", "source", "run_scope", "instance"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    for column in ("opened_at", "opened_by", "closed_by"):
        op.create_index(op.f(f"ix_loans_cluster_{column}"), "loans", ["cluster", column])


def _entries() -> None:
    op.create_table(
        "loan_entries",
        *map(_text, ("cluster", "loan_id")),
        *map(_whole, ("n", "at")),
        _text("account"),
        _whole("gpus"),
        sa.PrimaryKeyConstraint("cluster", "loan_id", "n", name=op.f("pk_loan_entries")),
        sa.ForeignKeyConstraint(
            ["cluster", "loan_id"],
            ["loans.cluster", "loans.loan_id"],
            name=op.f("fk_loan_entries_cluster_loan_id"),
        ),
        sa.CheckConstraint("n BETWEEN 0 AND 3", name=op.f("ck_loan_entries_n")),
    )
    op.create_index(op.f("ix_loan_entries_cluster_account"), "loan_entries", ["cluster", "account"])


SQLITE_TRIGGERS = (
    """CREATE TRIGGER loan_entries_no_update BEFORE UPDATE ON loan_entries
    BEGIN SELECT RAISE(ABORT, 'loan entries are append only'); END""",
    """CREATE TRIGGER loan_entries_no_delete BEFORE DELETE ON loan_entries
    BEGIN SELECT RAISE(ABORT, 'loan entries are append only'); END""",
    """CREATE TRIGGER loan_entries_no_replace BEFORE INSERT ON loan_entries
    WHEN EXISTS (SELECT 1 FROM loan_entries
        WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND n = NEW.n)
    BEGIN SELECT RAISE(ABORT, 'loan entries are append only: one cannot be replaced'); END""",
    """CREATE TRIGGER loans_closed BEFORE UPDATE ON loans WHEN OLD.closed_at IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'a closed loan cannot be changed'); END""",
    """CREATE TRIGGER loans_no_delete BEFORE DELETE ON loans
    BEGIN SELECT RAISE(ABORT, 'a loan cannot be deleted'); END""",
)

POSTGRESQL_TRIGGERS = (
    """CREATE TRIGGER loan_entries_no_change BEFORE UPDATE OR DELETE ON loan_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change()""",
    """CREATE TRIGGER loan_entries_no_truncate BEFORE TRUNCATE ON loan_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()""",
    """CREATE FUNCTION refuse_closed_loan() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING MESSAGE = 'a closed loan cannot be changed, nor any loan deleted',
            ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER loans_closed BEFORE UPDATE ON loans FOR EACH ROW
    WHEN (OLD.closed_at IS NOT NULL) EXECUTE FUNCTION refuse_closed_loan()""",
    """CREATE TRIGGER loans_no_delete BEFORE DELETE ON loans
    FOR EACH ROW EXECUTE FUNCTION refuse_closed_loan()""",
)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)
