"""The schema a database really has: up and down with data in it, all or nothing, and its own promises."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from controlplane.adapters.sql import migrate as migrations
from controlplane.adapters.sql.check import find_problems
from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.migrate import current, downgrade, head, migrate, require_head
from controlplane.adapters.sql.open import open_record
from controlplane.adapters.sql.pages import SqlPages
from controlplane.adapters.sql.people import place_hold
from controlplane.adapters.sql.tables import Base
from controlplane.domain.lifecycle import BORN, MOVES
from controlplane.domain.observation import Hold
from controlplane.domain.plan import ActionState
from controlplane.ports import InvalidConfig, Unavailable
from tests.adapters.sql.lent import booking, entry
from tests.adapters.sql.pages import told
from tests.adapters.sql.records import answer, made, weight
from tests.builders import NOW

ROOT = Path(__file__).resolve().parents[2]
VOCABULARIES = {"reason_codes", "action_states", "action_moves"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trimtab.db"


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    opened = open_engine(f"sqlite:///{file}")
    yield opened
    opened.dispose()


def filled(file: Path) -> None:
    """A record with something in every table that has a writer."""
    record = open_record(f"sqlite:///{file}", "demo")
    record.ledger.record(made(answer(weight())))
    record.ledger.record(booking(entry(gpus=2), entry("chat-8b-s02")))
    record.ledger.record(booking(entry("chat-8b-s02", opens=False), seq=2, at=NOW + 60))
    place_hold(record.engine, record.run, "h1", Hold(None, "anna", "test", NOW))
    SqlPages(record.engine).keep([told()], NOW)
    record.lease.release()
    record.close()


def schema(path: Path) -> dict[str, list[str]]:
    """Tables and indexes with their lines in order of the alphabet: order of constraints is no matter."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL"
        ).fetchall()
    return {
        name: sorted(line.strip().rstrip(",") for line in text.splitlines())
        for name, text in found
        if name != "alembic_version"
    }


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger')")
        return {name for (name,) in rows} - {"alembic_version"}


def test_migrations_and_models_describe_the_same_tables(engine: Engine, file: Path, tmp_path: Path) -> None:
    migrate(engine)
    modelled = tmp_path / "models.db"
    other = create_engine(f"sqlite:///{modelled}")
    Base.metadata.create_all(other)
    other.dispose()
    assert schema(file) == schema(modelled)
    assert find_problems(engine) == []


def test_up_down_and_up_again_with_data_in_it(engine: Engine, file: Path) -> None:
    filled(file)
    assert current(engine) == head()
    downgrade(engine, "base")
    assert current(engine) is None
    assert tables(file) == set(), "no table and no trigger outlives the way down"
    filled(file)
    assert (current(engine), find_problems(engine)) == (head(), [])


def test_up_when_already_up_changes_nothing(engine: Engine, file: Path) -> None:
    filled(file)
    before = schema(file)
    migrate(engine)
    assert schema(file) == before
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM cycles").fetchone() == (3,)


def test_a_database_of_a_newer_version_is_refused_and_left_alone(engine: Engine, file: Path) -> None:
    filled(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    before = file.read_bytes()
    for refused in (migrate, require_head, find_problems):
        with pytest.raises(InvalidConfig, match="0999, unknown to this version: a newer one wrote it"):
            refused(engine)
    assert file.read_bytes() == before


def promises(path: Path) -> dict[str, str]:
    """Triggers and indexes, word by word: what is lost where a table is built anew."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(
            connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql IS NOT NULL"
            ).fetchall()
        )


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


def ledger(path: Path) -> list[list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(query).fetchall() for query in LEDGER]


def written(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_guards_of_the_ledger_come_and_go_with_loans_in_it_and_nothing_else_changes(
    engine: Engine, file: Path
) -> None:
    filled(file)
    above, kept = promises(file), ledger(file)
    downgrade(engine, "0003")
    below = promises(file)
    assert ledger(file) == kept
    assert set(below) - set(above) == {"loan_entries_no_replace"}
    assert {name: text for name, text in above.items() if name in below}.items() <= below.items()
    with pytest.raises(sqlite3.IntegrityError, match="cannot be replaced"):
        written(file, "INSERT OR REPLACE INTO loan_entries SELECT * FROM loan_entries")
    migrate(engine)
    assert (promises(file), ledger(file), find_problems(engine)) == (above, kept, [])


def test_a_loan_that_the_older_version_opened_closes_with_both_sides_under_the_newer(
    engine: Engine, file: Path
) -> None:
    """One that closed before it opened, as a clock that was set back left it, stands as it is."""
    filled(file)
    downgrade(engine, "0003")
    backwards = "UPDATE loans SET closed_at = opened_at - 1, closed_by = 'x', close_code_id = 1"
    written(file, *OLDER_LEADER, f"{backwards} WHERE closed_at IS NULL AND loan_id <> 'older'")
    migrate(engine)
    written(
        file,
        "UPDATE loans SET closed_at = opened_at, closed_by = 'x', close_code_id = 1 WHERE loan_id = 'older'",
    )
    entries = [row[2:] for row in ledger(file)[1] if row[1] == "older"]
    assert [(n, account, gpus) for n, _at, account, gpus in entries] == [
        (0, "buffer", -2),
        (1, "chat-8b", 2),
        (2, "chat-8b", -2),
        (3, "buffer", 2),
    ]


def test_an_older_database_is_not_read_before_it_is_upgraded(engine: Engine, file: Path) -> None:
    file.touch()
    with pytest.raises(InvalidConfig, match="trimtab db upgrade"):
        require_head(engine)
    migrate(engine)
    require_head(engine)


def test_somebody_elses_database_is_refused_and_left_alone(engine: Engine, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    with pytest.raises(InvalidConfig, match=r"somebody else's tables \(bookmarks\)"):
        migrate(engine)
    assert tables(file) == {"bookmarks"}


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
    engine: Engine, file: Path, own_scripts: Path, then: str
) -> None:
    filled(file)
    before, last = schema(file), head()
    (own_scripts / "versions" / "0500_next.py").write_text(NEXT.format(then=then, head=last))
    with pytest.raises(Unavailable):
        migrate(engine)
    assert (schema(file), current(engine)) == (before, last)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_later_migration_is_applied_on_top_and_taken_back_alone(
    engine: Engine, file: Path, own_scripts: Path
) -> None:
    filled(file)
    last = head()
    (own_scripts / "versions" / "0500_next.py").write_text(NEXT.format(then="pass", head=last))
    migrate(engine)
    assert current(engine) == "0500"
    downgrade(engine, last)
    assert "extra" not in tables(file)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM cycles").fetchone() == (3,)


def test_deployers_at_once_take_turns_from_the_first_byte_of_the_file_on(tmp_path: Path) -> None:
    """Ten new files: the turn that went wrong, once in ten, was the change to WAL."""
    for number in range(10):
        assert failures_of_deployers(tmp_path / f"{number}.db", at_once=4) == []


def failures_of_deployers(file: Path, at_once: int) -> list[Exception]:
    failures: list[Exception] = []
    ready = threading.Barrier(at_once)

    def deploy() -> None:
        engine = open_engine(f"sqlite:///{file}")
        try:
            ready.wait()
            migrate(engine)
        except Exception as error:  # noqa: BLE001 - a thread's failure must reach the test
            failures.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=deploy) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


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


def test_the_database_knows_the_states_and_moves_that_the_program_knows(engine: Engine) -> None:
    migrate(engine)
    with engine.connect() as connection:
        states = {
            row[0]: row[1] for row in connection.exec_driver_sql("SELECT state, first FROM action_states")
        }
        moves = {tuple(row) for row in connection.exec_driver_sql("SELECT before, after FROM action_moves")}
    assert states == {state: state in BORN.values() for state in ActionState}
    assert moves == {(before, after) for before, afters in MOVES.items() for after in afters}


ACTION = (
    "INSERT INTO actions SELECT cluster, kind, seq, pool, 9, run_id, source, action_kind, gateway, instance, "
    "target, level, seen, code_id, ?, reason, changed_at FROM actions"
)


@pytest.mark.parametrize("state", ActionState)
def test_an_action_is_born_only_where_its_life_may_begin(file: Path, state: ActionState) -> None:
    filled(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        if state in BORN.values():
            connection.execute(ACTION, (state,))
        else:
            with pytest.raises(sqlite3.IntegrityError, match="cannot begin"):
                connection.execute(ACTION, (state,))


def test_a_move_that_the_life_of_an_action_does_not_know_is_refused_by_the_database(file: Path) -> None:
    filled(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        with pytest.raises(sqlite3.IntegrityError, match="cannot go"):
            connection.execute("UPDATE actions SET state = 'approved'")
        connection.execute("UPDATE actions SET state = 'applied'")
        with pytest.raises(sqlite3.IntegrityError, match="cannot go"):
            connection.execute("UPDATE actions SET state = 'applying'")


@pytest.mark.parametrize("statement", ["UPDATE action_events SET at = 0", "DELETE FROM action_events"])
def test_history_of_an_action_that_stands_cannot_be_changed(file: Path, statement: str) -> None:
    filled(file)
    with (
        closing(sqlite3.connect(file)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append only"),
    ):
        connection.execute(statement)


def test_history_goes_with_the_cycle_that_retention_removes(file: Path) -> None:
    filled(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM cycles")
        for table in ("decisions", "actions", "action_events"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608


def test_damage_is_found_and_named(engine: Engine, file: Path) -> None:
    filled(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM runs")
        connection.execute("ALTER TABLE holds ADD COLUMN stranger TEXT")
    found = "\n".join(find_problems(engine))
    assert "has no parent in runs" in found
    assert re.search(r"the tables: remove column", found)


def test_every_migration_is_written_down_in_the_notes() -> None:
    listed = set(
        re.findall(r"^\| (\d{4}) \|", (ROOT / "migrations/NOTES.md").read_text("utf-8"), re.MULTILINE)
    )
    assert listed == {path.name[:4] for path in (ROOT / "migrations/versions").glob("*.py")}
