"""The schema a database really has: up and down with data in it, all or nothing, and its own promises."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from controlplane.adapters.sql import migrate as migrations
from controlplane.adapters.sql.check import find_problems
from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import current, downgrade, head, migrate, require_head
from controlplane.adapters.sql.pages import SqlPages
from controlplane.adapters.sql.people import place_hold
from controlplane.adapters.sql.tables import Base
from controlplane.domain.observation import Hold
from controlplane.ports import InvalidConfig, Unavailable
from tests.adapters.sql.lent import booking, entry
from tests.adapters.sql.pages import told
from tests.adapters.sql.records import answer, made, weight
from tests.builders import NOW
from tests.databases import REFUSALS, Database, Row, closed, led, makes, only_sqlite
from tests.migrations.catalog import promises, schema, tables, triggers

ROOT = Path(__file__).resolve().parents[2]
VOCABULARIES = {"reason_codes", "action_states", "action_moves"}


@pytest.fixture
def engine(empty: Database) -> Iterator[Engine]:
    """Connections to a database without any table."""
    opened = open_engine(empty.url)
    yield opened
    opened.dispose()


def filled(database: Database) -> None:
    """A record with something in every table that has a writer."""
    record = led(database)
    record.ledger.record(made(answer(weight())))
    record.ledger.record(booking(entry(gpus=2), entry("chat-8b-s02")))
    record.ledger.record(booking(entry("chat-8b-s02", opens=False), seq=2, at=NOW + 60))
    place_hold(record.engine, record.run, "h1", Hold(None, "anna", "test", NOW))
    SqlPages(record.engine).keep([told()], NOW)
    closed(record)


def written(database: Database, *statements: str) -> None:
    for statement in statements:
        database.sql(statement)


def test_migrations_and_models_describe_the_same_tables(
    engine: Engine, empty: Database, kind: str, request: pytest.FixtureRequest
) -> None:
    migrate(engine)
    with makes(kind, request, tables=False)() as modelled:
        other = open_engine(modelled.url).execution_options(write=True)
        Base.metadata.create_all(other)
        other.dispose()
        assert schema(empty) == schema(modelled)
    assert find_problems(engine) == []


def test_up_down_and_up_again_with_data_in_it(engine: Engine, empty: Database) -> None:
    filled(empty)
    assert current(engine) == head()
    above = promises(empty)
    downgrade(engine, "base")
    assert current(engine) is None
    assert tables(empty) == set(), "no table, no trigger and no function outlives the way down"
    filled(empty)
    assert (current(engine), find_problems(engine), promises(empty)) == (head(), [], above)


GUARDS = {
    "sqlite": """acts_no_update acts_no_delete acts_no_replace
        action_events_no_update action_events_no_delete action_events_no_replace
        actions_birth actions_move actions_no_replace
        loans_birth loans_terms loans_end loans_closed loans_opened loans_returned loans_no_delete
        loans_no_replace loan_entries_no_update loan_entries_no_delete loan_entries_as_lent""",
    "postgresql": """acts_no_change acts_no_truncate
        action_events_no_update action_events_no_delete action_events_no_truncate actions_birth actions_move
        loans_birth loans_terms loans_end loans_closed loans_opened loans_returned loans_no_delete
        loan_entries_no_change loan_entries_no_truncate loan_entries_as_lent""",
}


def test_each_step_down_and_up_again_brings_back_every_trigger_and_every_index(
    engine: Engine, empty: Database
) -> None:
    """SQLite builds a table anew to change it, which drops its triggers and forgets how an index runs."""
    filled(empty)
    above = promises(empty)
    assert triggers(empty) == set(GUARDS[empty.kind].split())
    for number in range(int(head()) - 1, 0, -1):
        downgrade(engine, f"{number:04}")
        assert promises(empty) != above or number + 1 in WITHOUT_PROMISES[empty.kind]
        migrate(engine)
        assert promises(empty) == above, f"after a way down to {number:04}"


WITHOUT_PROMISES = {"sqlite": set[int](), "postgresql": {5}}
"""Revisions that add neither trigger nor index, and nothing above them does."""


def test_up_when_already_up_changes_nothing(engine: Engine, empty: Database) -> None:
    filled(empty)
    before = schema(empty)
    migrate(engine)
    assert (schema(empty), empty.rows("cycles")) == (before, 3)


def test_a_database_of_a_newer_version_is_refused_and_left_alone(engine: Engine, empty: Database) -> None:
    filled(empty)
    empty.sql("UPDATE alembic_version SET version_num = '0999'")
    before, bytes_ = schema(empty), empty.file and empty.file.read_bytes()
    for refused in (migrate, require_head, find_problems):
        with pytest.raises(InvalidConfig, match="0999, unknown to this version: a newer one wrote it"):
            refused(engine)
    assert (schema(empty), empty.file and empty.file.read_bytes()) == (before, bytes_)
    assert empty.sql("SELECT version_num FROM alembic_version") == [("0999",)]


LEDGER = tuple(f"SELECT * FROM {name} ORDER BY 1, 2, 3" for name in ("loans", "loan_entries"))  # noqa: S608
OLDER_LEADER = (
    """INSERT INTO loans SELECT cluster, 'older', run_id, source, run_scope, lender, borrower, 'older', node,
    gpus, opened_at, opened_by, open_code_id, due_at, NULL, NULL, NULL FROM loans WHERE closed_at IS NULL""",
    *(
        f"INSERT INTO loan_entries SELECT cluster, loan_id, {n}, opened_at, {account}, {gpus} FROM loans "  # noqa: S608
        "WHERE loan_id = 'older'"
        for n, account, gpus in ((0, "lender", "-gpus"), (1, "borrower", "gpus"))
    ),
)
"""What a leader of the version before 0004 writes for a loan."""


def ledger(database: Database) -> list[list[Row]]:
    return [database.sql(query) for query in LEDGER]


def test_guards_of_the_ledger_come_and_go_with_loans_in_it_and_nothing_else_changes(
    engine: Engine, empty: Database
) -> None:
    filled(empty)
    above, kept = promises(empty), ledger(empty)
    downgrade(engine, "0003")
    below = promises(empty)
    assert ledger(empty) == kept
    assert set(below) - set(above) == ({"loan_entries_no_replace"} if empty.file else set())
    assert {name: text for name, text in above.items() if name in below}.items() <= below.items()
    migrate(engine)
    assert (promises(empty), ledger(empty), find_problems(engine)) == (above, kept, [])


@only_sqlite
def test_on_sqlite_the_guard_of_entries_that_was_there_before_comes_back_on_the_way_down(
    engine: Engine, empty: Database
) -> None:
    filled(empty)
    downgrade(engine, "0003")
    with pytest.raises(REFUSALS, match="cannot be replaced"):
        written(empty, "INSERT OR REPLACE INTO loan_entries SELECT * FROM loan_entries")


def test_a_loan_that_the_older_version_opened_closes_with_both_sides_under_the_newer(
    engine: Engine, empty: Database
) -> None:
    """One that closed before it opened, as a clock that was set back left it, stands as it is."""
    filled(empty)
    downgrade(engine, "0003")
    backwards = "UPDATE loans SET closed_at = opened_at - 1, closed_by = 'x', close_code_id = 1"
    written(empty, *OLDER_LEADER, f"{backwards} WHERE closed_at IS NULL AND loan_id <> 'older'")
    migrate(engine)
    written(
        empty,
        "UPDATE loans SET closed_at = opened_at, closed_by = 'x', close_code_id = 1 WHERE loan_id = 'older'",
    )
    entries = [row[2:] for row in ledger(empty)[1] if row[1] == "older"]
    assert [(n, account, gpus) for n, _at, account, gpus in entries] == [
        (0, "buffer", -2),
        (1, "chat-8b", 2),
        (2, "chat-8b", -2),
        (3, "buffer", 2),
    ]


def test_an_older_database_is_not_read_before_it_is_upgraded(engine: Engine, empty: Database) -> None:
    with pytest.raises(InvalidConfig, match="trimtab db upgrade"):
        require_head(engine)
    migrate(engine)
    require_head(engine)


def test_somebody_elses_database_is_refused_and_left_alone(engine: Engine, empty: Database) -> None:
    empty.sql("CREATE TABLE bookmarks (id INTEGER)")
    with pytest.raises(InvalidConfig, match=r"somebody else's tables \(bookmarks\)"):
        migrate(engine)
    assert tables(empty) == {"bookmarks"}


@pytest.fixture
def own_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations that a test may add to."""
    copy = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrations, "scripts", lambda: copy)
    return copy


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "0500", "{head}", None, None
def upgrade():
    op.execute("CREATE TABLE extra (id INTEGER)")
    {then}
def downgrade():
    op.drop_table("extra")
"""


@pytest.mark.parametrize(
    "then",
    ["op.execute('nonsense')", 'op.execute("DELETE FROM runs")'],
    ids=["a statement fails", "rows lose their parents"],
)
def test_a_migration_that_breaks_half_way_leaves_everything_as_it_was(
    engine: Engine, empty: Database, own_scripts: Path, then: str
) -> None:
    filled(empty)
    before, last = schema(empty), head()
    (own_scripts / "versions" / "0500_next.py").write_text(NEXT.format(then=then, head=last))
    with pytest.raises(Unavailable):
        migrate(engine)
    assert (schema(empty), current(engine), empty.rows("runs")) == (before, last, 1)


def test_a_later_migration_is_applied_on_top_and_taken_back_alone(
    engine: Engine, empty: Database, own_scripts: Path
) -> None:
    filled(empty)
    last = head()
    (own_scripts / "versions" / "0500_next.py").write_text(NEXT.format(then="pass", head=last))
    migrate(engine)
    assert current(engine) == "0500"
    assert "extra" in tables(empty)
    downgrade(engine, last)
    assert "extra" not in tables(empty)
    assert empty.rows("cycles") == 3


def test_an_installed_package_brings_its_migrations_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the wheel lays them out: inside the package, with no checkout beside it."""
    package = tmp_path / "site-packages" / "controlplane"
    shutil.copytree(ROOT / "migrations", package / "_shipped" / "migrations")
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})()
    assert migrations.scripts() == ROOT / "migrations", "a checkout uses its own"
    monkeypatch.setattr(migrations, "find_spec", lambda _name: spec)
    assert migrations.scripts() == package / "_shipped" / "migrations"
    engine = open_engine(f"sqlite:///{tmp_path / 'wheel.db'}")
    migrate(engine)
    assert current(engine) == head()
    engine.dispose()


def test_the_wheel_is_told_to_bring_them() -> None:
    assert '"migrations" = "controlplane/_shipped/migrations"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", sorted(set(Base.metadata.tables) - VOCABULARIES))
def test_every_key_and_every_index_begins_with_the_cluster(name: str) -> None:
    table = Base.metadata.tables[name]
    assert next(iter(table.primary_key.columns)).name == "cluster"
    assert {next(iter(index.columns)).name for index in table.indexes} <= {"cluster"}


@pytest.mark.parametrize("name", ["runs", "cycles", "decisions", "streaks", "actions", "acts", "loans"])
def test_every_fact_says_which_run_it_is_of_and_where_that_runs_world_came_from(name: str) -> None:
    assert {"source", "run_id"} <= set(Base.metadata.tables[name].columns.keys())


def test_constraints_have_names_of_their_own_as_postgresql_wants_them() -> None:
    for table in Base.metadata.tables.values():
        names = [each.name for each in table.constraints]
        assert None not in names
        assert len(set(names)) == len(names)


def test_a_column_that_is_not_ours_is_found_and_named(engine: Engine, empty: Database) -> None:
    filled(empty)
    assert find_problems(engine) == []
    empty.sql("ALTER TABLE holds ADD COLUMN stranger TEXT")
    (found,) = find_problems(engine)
    assert "the tables: remove column" in found


@only_sqlite
def test_on_sqlite_rows_without_their_parents_are_found_and_named(engine: Engine, empty: Database) -> None:
    filled(empty)
    empty.sql("DELETE FROM runs")
    assert "has no parent in runs" in "\n".join(find_problems(engine))


def test_every_migration_is_written_down_in_the_notes() -> None:
    listed = set(
        re.findall(r"^\| (\d{4}) \|", (ROOT / "migrations/NOTES.md").read_text("utf-8"), re.MULTILINE)
    )
    assert listed == {path.name[:4] for path in (ROOT / "migrations/versions").glob("*.py")}
