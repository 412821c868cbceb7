"""What a loan may be, kept by the database itself.

A loan begins open, its terms stand for good, and it closes once, for a reason, not before it opened.
Its entries are written by the database with the loan: both sides or none, and nobody else's. So each
loan's entries sum to zero whoever writes. Only triggers are added: no table is built anew, and rows from
before stay as they are. A leader of the older version writes its entries itself; they are those that are
there already, and are passed over. The way down brings back the trigger that 0002 had.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One trigger of 0002 goes: an entry that stands is now told from another one in its place."""
    if _postgresql():
        _run(POSTGRESQL_UP)
    else:
        op.execute("DROP TRIGGER loan_entries_no_replace")
        _run(SQLITE_UP)


def downgrade() -> None:
    """The tables are as 0002 left them; no row is lost."""
    if _postgresql():
        _run(POSTGRESQL_DOWN)
    else:
        _run(tuple(f"DROP TRIGGER {text.split()[2]}" for text in SQLITE_UP))
        op.execute(NO_REPLACE_OF_0002)


def _postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _run(statements: tuple[str, ...]) -> None:
    for statement in statements:
        op.execute(statement)


TERMS = "cluster loan_id run_id source run_scope lender borrower instance node gpus opened_at opened_by"
TERMS_CHANGED = " OR ".join(f"NEW.{name} <> OLD.{name}" for name in (*TERMS.split(), "open_code_id"))
BORN_CLOSED = "NEW.closed_at IS NOT NULL OR NEW.closed_by IS NOT NULL OR NEW.close_code_id IS NOT NULL"
ENDS_WRONGLY = "(NEW.closed_at IS NULL) <> (NEW.close_code_id IS NULL) OR NEW.closed_at < NEW.opened_at"
SAID = """CASE NEW.n
            WHEN 0 THEN NEW.account = lender AND NEW.gpus = -gpus AND NEW.at = opened_at
            WHEN 1 THEN NEW.account = borrower AND NEW.gpus = gpus AND NEW.at = opened_at
            WHEN 2 THEN NEW.account = borrower AND NEW.gpus = -gpus AND NEW.at = closed_at
            WHEN 3 THEN NEW.account = lender AND NEW.gpus = gpus AND NEW.at = closed_at END"""
OPENS = """INSERT INTO loan_entries (cluster, loan_id, n, at, account, gpus)
    VALUES (NEW.cluster, NEW.loan_id, 0, NEW.opened_at, NEW.lender, -NEW.gpus),
        (NEW.cluster, NEW.loan_id, 1, NEW.opened_at, NEW.borrower, NEW.gpus);"""
CLOSES = """INSERT INTO loan_entries (cluster, loan_id, n, at, account, gpus)
    VALUES (NEW.cluster, NEW.loan_id, 2, NEW.closed_at, NEW.borrower, -NEW.gpus),
        (NEW.cluster, NEW.loan_id, 3, NEW.closed_at, NEW.lender, NEW.gpus);"""

# `INSERT OR REPLACE` skips delete triggers, also for the open loan that holds the instance already.
SQLITE_UP = (
    f"""CREATE TRIGGER loans_birth BEFORE INSERT ON loans WHEN {BORN_CLOSED}
    BEGIN SELECT RAISE(ABORT, 'a loan begins open'); END""",
    """CREATE TRIGGER loans_no_replace BEFORE INSERT ON loans
    WHEN EXISTS (SELECT 1 FROM loans WHERE cluster = NEW.cluster AND (loan_id = NEW.loan_id
        OR (closed_at IS NULL AND source = NEW.source AND run_scope = NEW.run_scope
            AND instance = NEW.instance)))
    BEGIN SELECT RAISE(ABORT, 'a loan stands already, of this id or open for this instance'); END""",
    f"""CREATE TRIGGER loans_terms BEFORE UPDATE ON loans WHEN {TERMS_CHANGED}
    BEGIN SELECT RAISE(ABORT, 'the terms of a loan cannot be changed'); END""",
    f"""CREATE TRIGGER loans_end BEFORE UPDATE ON loans WHEN {ENDS_WRONGLY}
    BEGIN SELECT RAISE(ABORT, 'a loan closes for a reason, and not before it opened'); END""",
    f"""CREATE TRIGGER loans_opened AFTER INSERT ON loans
    BEGIN {OPENS} END""",
    f"""CREATE TRIGGER loans_returned AFTER UPDATE ON loans
    WHEN OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL
    BEGIN {CLOSES} END""",
    f"""CREATE TRIGGER loan_entries_as_lent BEFORE INSERT ON loan_entries
    BEGIN SELECT CASE
        WHEN NOT EXISTS (SELECT 1 FROM loans
            WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND {SAID})
        THEN RAISE(ABORT, 'loan entries are what their loan says, and append only')
        WHEN EXISTS (SELECT 1 FROM loan_entries
            WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND n = NEW.n)
        THEN RAISE(IGNORE) END;
    END""",  # noqa: S608 - all of it stands in this file
)

NO_REPLACE_OF_0002 = """CREATE TRIGGER loan_entries_no_replace BEFORE INSERT ON loan_entries
    WHEN EXISTS (SELECT 1 FROM loan_entries
        WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND n = NEW.n)
    BEGIN SELECT RAISE(ABORT, 'loan entries are append only: one cannot be replaced'); END"""


def _refusing(name: str, when: str, words: str) -> str:
    return f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF {when} THEN
            RAISE EXCEPTION USING MESSAGE = '{words}', ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END $$"""


def _booking(name: str, insert: str) -> str:
    return f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {insert}
        RETURN NULL;
    END $$"""


POSTGRESQL_UP = (
    _refusing("check_loan_birth", BORN_CLOSED, "a loan begins open"),
    """CREATE TRIGGER loans_birth BEFORE INSERT ON loans
    FOR EACH ROW EXECUTE FUNCTION check_loan_birth()""",
    _refusing("check_loan_terms", TERMS_CHANGED, "the terms of a loan cannot be changed"),
    """CREATE TRIGGER loans_terms BEFORE UPDATE ON loans
    FOR EACH ROW EXECUTE FUNCTION check_loan_terms()""",
    _refusing("check_loan_end", ENDS_WRONGLY, "a loan closes for a reason, and not before it opened"),
    """CREATE TRIGGER loans_end BEFORE UPDATE ON loans
    FOR EACH ROW EXECUTE FUNCTION check_loan_end()""",
    _booking("book_loan_opened", OPENS),
    """CREATE TRIGGER loans_opened AFTER INSERT ON loans
    FOR EACH ROW EXECUTE FUNCTION book_loan_opened()""",
    _booking("book_loan_returned", CLOSES),
    """CREATE TRIGGER loans_returned AFTER UPDATE ON loans FOR EACH ROW
    WHEN (OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL) EXECUTE FUNCTION book_loan_returned()""",
    f"""CREATE FUNCTION check_loan_entry() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM loans
                WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND {SAID}) THEN
            RAISE EXCEPTION USING MESSAGE = 'loan entries are what their loan says, and append only',
                ERRCODE = 'integrity_constraint_violation';
        END IF;
        IF EXISTS (SELECT 1 FROM loan_entries
                WHERE cluster = NEW.cluster AND loan_id = NEW.loan_id AND n = NEW.n) THEN
            RETURN NULL;
        END IF;
        RETURN NEW;
    END $$""",  # noqa: S608 - all of it stands in this file
    """CREATE TRIGGER loan_entries_as_lent BEFORE INSERT ON loan_entries
    FOR EACH ROW EXECUTE FUNCTION check_loan_entry()""",
)

POSTGRESQL_DOWN = (
    *(f"DROP TRIGGER {name} ON loans" for name in ["loans_birth", "loans_terms", "loans_end"]),
    *(f"DROP TRIGGER {name} ON loans" for name in ["loans_opened", "loans_returned"]),
    "DROP TRIGGER loan_entries_as_lent ON loan_entries",
    *(f"DROP FUNCTION check_loan_{name}()" for name in ["birth", "terms", "end", "entry"]),
    *(f"DROP FUNCTION book_loan_{name}()" for name in ["opened", "returned"]),
)
