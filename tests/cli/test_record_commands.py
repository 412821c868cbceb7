"""The commands about the record, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from controlplane.adapters.sql.engine import writing
from controlplane.adapters.sql.open import open_record
from controlplane.cli.main import main
from controlplane.domain.ids import CycleKind
from tests.adapters.sql.history import cycle_record, observed, write
from tests.builders import NOW


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'trimtab.db'}"
    record = open_record(url, "demo", "demo", "run-1")
    write(record, 6)
    record.lease.release()
    record.close()
    return url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def test_decisions_are_listed_newest_first_with_their_why(database: str) -> None:
    told = run("decisions", "list", "--all", "--json", "--database", database)
    rows = json.loads(told.output)
    assert [row["id"] for row in rows[:2]] == ["demo:capacity:3:chat-8b", "demo:weights:3:chat-8b"]
    assert len(rows) == 6
    assert rows[-1]["sentence"].startswith("chat-8b changes 4 levels at its gateways")


def test_repeats_of_the_same_stand_as_one_row(database: str) -> None:
    """An hour of calm is one line and not two hundred (B-193)."""
    record = open_record(database, "demo", "demo", "run-2")
    for number in range(1, 61):
        seen = observed(CycleKind.CAPACITY, NOW + 60.0 * number, limit=40)
        record.ledger.record(cycle_record(record.ledger.next_seq(CycleKind.CAPACITY), seen))
    record.lease.release()
    record.close()
    rows = json.loads(run("decisions", "list", "--kind", "capacity", "--json", "--database", database).output)
    assert len(rows) < 5
    assert max(row["repeats"] for row in rows) >= 55


@pytest.mark.parametrize(
    ("option", "value", "count"),
    [("--pool", "chat-8b", 6), ("--pool", "other", 0), ("--kind", "weights", 3), ("--outcome", "change", 1)],
)
def test_filters_leave_what_they_say(database: str, option: str, value: str, count: int) -> None:
    told = run("decisions", "list", "--all", "--json", option, value, "--database", database)
    assert len(json.loads(told.output)) == count


def test_a_list_without_a_match_says_what_to_do(database: str) -> None:
    told = run("decisions", "list", "--pool", "other", "--database", database)
    assert told.exit_code == 0
    assert "No decision matches" in told.output


def test_a_decision_is_shown_with_the_history_of_its_actions(database: str) -> None:
    told = json.loads(run("decisions", "show", "demo:weights:1:chat-8b", "--database", database).output)
    assert told["decision"]["form"] == "decision/1"
    assert [event["state"] for event in told["actions"][0]["events"]] == ["applying"]


def test_explaining_begins_with_the_sentence_and_ends_with_what_was_done(database: str) -> None:
    told = run("explain", "demo:weights:1:chat-8b", "--database", database)
    lines = told.output.splitlines()
    assert lines[0].startswith("chat-8b changes 4 levels at its gateways")
    assert "speed: " in told.output
    assert lines[-1].startswith("  action 3: ")


def test_a_cycle_is_explained_pool_by_pool(database: str) -> None:
    told = json.loads(run("explain", "demo:capacity:2", "--json", "--database", database).output)
    assert [each["id"] for each in told] == ["demo:capacity:2:chat-8b"]


@pytest.mark.parametrize(
    "command", [("explain", "demo:weights:99:chat-8b"), ("decisions", "show", "demo:weights:99:chat-8b")]
)
def test_an_id_that_is_not_there_points_to_the_list(database: str, command: tuple[str, ...]) -> None:
    told = run(*command, "--database", database)
    assert told.exit_code == 1
    assert "no decision demo:weights:99:chat-8b" in told.output
    assert "trimtab decisions list" in told.output


@pytest.mark.parametrize("command", [("explain", "nonsense"), ("replay", "nonsense")])
def test_a_word_that_is_no_id_is_told_what_ids_look_like(database: str, command: tuple[str, ...]) -> None:
    told = run(*command, "--database", database)
    assert told.exit_code == 2
    assert "a decision looks like demo:weights:42:chat-8b" in told.output


@pytest.mark.parametrize("command", [("decisions", "list"), ("replay", "--all"), ("db", "current")])
def test_a_database_that_is_not_there_is_said_and_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    missing = tmp_path / "none.db"
    told = run(*command, "--database", f"sqlite:///{missing}")
    assert told.exit_code == 1
    assert "does not exist" in told.output
    assert not missing.exists()


def test_a_damaged_row_is_named(database: str) -> None:
    record = open_record(database, "demo", "demo", "run-2")
    with writing(record.engine) as session:
        session.execute(text("UPDATE cycles SET observation = x'00' WHERE kind = 'weights' AND seq = 2"))
    record.lease.release()
    record.close()
    told = run("replay", "--all", "--database", database)
    assert told.exit_code == 1
    assert "observation of demo:weights:2" in told.output


def test_markup_in_a_name_is_shown_as_it_is(database: str) -> None:
    """A reason from outside is text, never markup or a terminal's command."""
    record = open_record(database, "demo", "demo", "run-2")
    with writing(record.engine) as session:
        session.execute(text("UPDATE actions SET instance = '[bold]x'"))
    record.lease.release()
    record.close()
    told = run("explain", "demo:weights:1:chat-8b", "--database", database)
    assert "[bold]x" in told.output


def test_a_schema_is_upgraded_and_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert run("db", "upgrade", "--database", url).output == "at revision 0001\n"
    assert json.loads(run("db", "current", "--json", "--database", url).output) == {
        "current": "0001",
        "head": "0001",
    }
    assert run("db", "downgrade", "base", "--yes", "--database", url).output == "at revision none\n"
    assert run("db", "current", "--database", url).exit_code == 1
