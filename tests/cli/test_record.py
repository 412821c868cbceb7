"""The commands about the record, as somebody types them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from controlplane import __version__
from controlplane.adapters.sql.codec import pack
from controlplane.adapters.sql.migrate import head
from controlplane.adapters.sql.open import open_record
from controlplane.cli.main import main
from controlplane.domain.ids import CycleKind
from controlplane.domain.plan import ActionState
from controlplane.domain.readings import Column, Signal
from tests.adapters.sql.records import answer, decided, made, run_of, slow_instance, weight
from tests.builders import NOW

Trimtab = Callable[..., Result]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of ten weight cycles in which one instance slows down, and one capacity cycle."""
    path = tmp_path_factory.mktemp("record") / "trimtab.db"
    record = open_record(f"sqlite:///{path}", "demo", run_id="first")
    for cycle in run_of(record.ledger, [1.0] * 4 + [0.5] * 6):
        unknown = {id_: (ActionState.APPLIED, "") for id_, _ in record.ledger.unknown_actions()}
        record.ledger.settle(unknown, cycle.started_at + 0.5)
    capacity = slow_instance(NOW + 50, kind=CycleKind.CAPACITY)
    record.ledger.record(replace(decided(capacity), code_version="0.0.old"))
    record.lease.release()
    record.close()
    return path


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "trimtab.db"
    copy.write_bytes(template.read_bytes())
    return copy


@pytest.fixture
def trimtab(file: Path, monkeypatch: pytest.MonkeyPatch) -> Trimtab:
    """The command, with the record named by the environment."""
    monkeypatch.setenv("TRIMTAB_DATABASE", f"sqlite:///{file}")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    return run


def data(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def change(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, values)


def test_a_list_shows_changes_and_folds_the_rest(trimtab: Trimtab) -> None:
    """B-193: the decision log is de-duplicated; with --all each tick is there."""
    folded, every = (data(trimtab("decisions", "list", "--json", *more)) for more in ((), ("--all",)))
    assert len(every) == 11
    assert len(folded) < len(every)
    assert sum(int(str(row["repeats"])) for row in folded) == len(every)
    assert all(row["repeats"] == 1 for row in every)


def test_a_list_is_a_table_with_times_in_utc_and_the_sentence(trimtab: Trimtab) -> None:
    shown = trimtab("decisions", "list", "--outcome", "change").output
    assert "2027-01-15T08:00:20Z" in shown
    assert "demo:weights:5:chat-8b" in shown
    assert "chat-8b-04" in shown, "the instance that slowed down"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--kind", "capacity"), {"demo:capacity:1:chat-8b"}),
        (("--pool", "vision"), set()),
        (("--since", "2027-01-15T08:00:50"), {"demo:capacity:1:chat-8b"}),
        (("--code", "never_used"), set()),
    ],
)
def test_a_list_can_be_narrowed(trimtab: Trimtab, options: Sequence[str], expected: set[str]) -> None:
    assert {row["id"] for row in data(trimtab("decisions", "list", "--json", *options))} == expected


def test_a_narrow_window_takes_nothing_from_a_list(trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns there was no room for the reason, and outcomes lost their ends."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = trimtab("decisions", "list").output
    titles = next(iter(shown.splitlines())).split()
    assert titles[-1] == "why"
    assert "…" not in shown


def test_pages_follow_one_another_by_the_last_id(trimtab: Trimtab) -> None:
    for more in ((), ("--all",)):
        whole = [row["id"] for row in data(trimtab("decisions", "list", "--json", *more))]
        first = trimtab("decisions", "list", "--limit", "2", *more)
        assert f"more: --before {whole[1]}" in first.stderr
        rest = data(trimtab("decisions", "list", "--json", "--before", str(whole[1]), *more))
        assert [row["id"] for row in rest] == whole[2:]


def test_show_gives_the_decision_and_the_life_of_its_actions(trimtab: Trimtab) -> None:
    result = trimtab("decisions", "show", "demo:weights:5:chat-8b", "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["decision"]["form"] == "decision/2"
    states = [[event["state"] for event in action["events"]] for action in shown["actions"]]
    assert states
    assert all(each == ["applying", "applied"] for each in states)


def test_explain_says_why_in_words_and_what_came_of_it(trimtab: Trimtab) -> None:
    said = trimtab("explain", "demo:weights:5:chat-8b").output
    assert said.startswith("chat-8b ")
    assert "because" in said.splitlines()[0]
    assert "applied 2027-01-15T08:00:20Z" in said


def test_a_cycle_is_explained_pool_by_pool(trimtab: Trimtab) -> None:
    said = trimtab("explain", "demo:capacity:1", "--json")
    assert [each["id"] for each in data(said)] == ["demo:capacity:1:chat-8b"]


@pytest.mark.parametrize("command", [("explain",), ("decisions", "show"), ("replay",)])
@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("demo:weights:99:chat-8b", "nearest weights cycle is demo:weights:10"),
        ("demo:weights:5:vision", "decided for these pools: chat-8b"),
        ("other:weights:5:chat-8b", "clusters here: demo"),
        ("chat-8b", "a decision looks like demo:weights:42:chat-8b"),
        ("demo:weights:-1:chat-8b", "looks like"),
    ],
)
def test_an_id_that_is_not_there_is_answered_with_what_is(
    trimtab: Trimtab, command: Sequence[str], wrong: str, hint: str
) -> None:
    result = trimtab(*command, "--", wrong)
    assert result.exit_code != 0
    assert hint in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("decisions", "list"),
        ("explain", "demo:weights:1"),
        ("replay", "--all"),
        ("db", "current"),
        ("db", "check"),
    ],
    ids=" ".join,
)
def test_without_a_record_every_command_says_so_and_creates_none(
    tmp_path: Path, arguments: Sequence[str]
) -> None:
    missing = tmp_path / "nowhere" / "trimtab.db"
    result = CliRunner().invoke(main, [*arguments, "--database", f"sqlite:///{missing}"])
    assert result.exit_code == 1
    assert "does not exist" in result.output
    assert not missing.parent.exists()


def test_a_damaged_row_is_named_and_no_traceback_shown(trimtab: Trimtab, file: Path) -> None:
    change(file, "UPDATE decisions SET body = x'00' WHERE kind = 'weights' AND seq = 10")
    result = trimtab("decisions", "list", "--all")
    assert result.exit_code == 1
    assert "decision demo:weights:10:chat-8b" in result.output
    assert "Traceback" not in result.output


NO_NETWORK = """
import socket, sys
def refuse(*_args, **_kwargs):
    raise OSError("this process may not touch the network")
socket.socket.connect = socket.socket.bind = socket.create_connection = refuse
socket.socket.__init__ = refuse
from controlplane.cli.main import main
main()
"""


def test_a_fresh_process_without_a_network_computes_the_whole_run_again(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, "replay", "--all", "--json", "--database", f"sqlite:///{file}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["replayed"], said["identical"], said["different"]) == (11, 11, [])


def test_that_process_really_has_no_network() -> None:
    probe = NO_NETWORK.replace("main()", "socket.create_connection(('127.0.0.1', 1))")
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert "may not touch the network" in done.stderr


def heal(file: Path, seq: int) -> None:
    """Change one decisive input of a stored observation: the slow instance was as fast as the others."""
    observation = slow_instance(NOW + 5.0 * (seq - 1), 0.5)
    times = observation.signals[Signal.STEP_TIME]
    same = np.where(np.arange(4) == 3, times.value[0], times.value)
    healed = Column(same, times.ok, times.cause, times.sampled_at)
    changed = replace(observation, signals={**observation.signals, Signal.STEP_TIME: healed})
    change(file, "UPDATE frames SET observation = ? WHERE kind = 'weights' AND seq = ?", pack(changed), seq)


def test_a_changed_input_gives_another_result_which_is_named_and_ends_with_status_1(
    trimtab: Trimtab, file: Path
) -> None:
    assert trimtab("replay", "demo:weights:5:chat-8b").exit_code == 0
    heal(file, 5)
    result = trimtab("replay", "demo:weights:5:chat-8b")
    assert result.exit_code == 1
    assert "1 cycles with 1 decisions replayed, 0 identical" in result.output
    assert "plan.decisions.chat-8b" in result.output
    whole = trimtab("replay", "--all", "--json")
    assert whole.exit_code == 1
    said = json.loads(whole.stdout)
    assert (said["replayed"], said["identical"]) == (11, 10)
    assert [each["cycle"] for each in said["different"]] == ["demo:weights:5"]


def test_a_stored_plan_that_was_changed_has_no_say_in_the_computation(trimtab: Trimtab, file: Path) -> None:
    forged = pack(answer(weight(1)))
    change(file, "UPDATE decisions SET body = ? WHERE kind = 'weights' AND seq = 5", forged)
    result = trimtab("replay", "demo:weights:5")
    assert result.exit_code == 1
    assert "not those that were recorded" in result.output


def test_one_damaged_cycle_is_counted_and_keeps_no_other_from_being_replayed(
    trimtab: Trimtab, file: Path
) -> None:
    change(file, "UPDATE frames SET observation = x'00' WHERE kind = 'weights' AND seq = 2")
    result = trimtab("replay", "--all", "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["replayed"], said["identical"]) == (1, 11, 10)
    (damaged,) = said["different"]
    assert damaged["cycle"] == "demo:weights:2"
    assert damaged["problem"].startswith("observation of demo:weights:2: ")


def test_a_name_from_outside_is_text_and_never_markup(trimtab: Trimtab, file: Path) -> None:
    change(file, "UPDATE actions SET instance = '[bold]x'")
    assert "[bold]x" in trimtab("explain", "demo:weights:5:chat-8b").output


def test_a_range_is_replayed_from_the_one_to_the_other(trimtab: Trimtab) -> None:
    result = trimtab("replay", "demo:weights:3", "demo:weights:6")
    assert (result.exit_code, "4 cycles" in result.output) == (0, True)
    assert trimtab("replay", "demo:weights:3", "demo:capacity:1").exit_code == 2


def test_a_run_is_replayed_by_its_name(trimtab: Trimtab) -> None:
    assert "11 cycles" in trimtab("replay", "--all", "--run", "first").output
    result = trimtab("replay", "--all", "--run", "never")
    assert (result.exit_code, "nothing to replay" in result.output) == (1, True)


def test_another_version_of_the_program_is_named(trimtab: Trimtab) -> None:
    shown = trimtab("replay", "demo:capacity:1").output
    assert f"recorded by other versions of this program: 0.0.old (this is {__version__})" in shown


@pytest.mark.parametrize("arguments", [(), ("demo:weights:1", "--all"), ("demo:weights:1", "--run", "first")])
def test_what_to_replay_is_said_once(trimtab: Trimtab, arguments: Sequence[str]) -> None:
    assert trimtab("replay", *arguments).exit_code == 2


def test_the_schema_goes_up_and_down_and_says_where_it_is(tmp_path: Path) -> None:
    where = ["--database", f"sqlite:///{tmp_path / 'var' / 'new.db'}"]
    run = CliRunner().invoke
    assert f"at revision {head()}" in run(main, ["db", "upgrade", *where]).output
    assert run(main, ["db", "current", *where]).output == f"at {head()}, needs {head()}\n"
    assert run(main, ["db", "check", *where]).output == "no damage found\n"
    assert run(main, ["db", "downgrade", "base", *where], input="n\n").exit_code == 1, "it asks first"
    assert run(main, ["db", "downgrade", "base", "--yes", *where]).exit_code == 0
    assert run(main, ["db", "current", *where]).exit_code == 1
    shown = run(main, ["decisions", "list", *where])
    assert (shown.exit_code, "trimtab db upgrade" in shown.output) == (1, True)


def test_damage_is_found_by_check(trimtab: Trimtab, file: Path) -> None:
    change(file, "DELETE FROM runs")
    result = trimtab("db", "check", "--json")
    assert result.exit_code == 1
    assert any("no parent in runs" in each for each in json.loads(result.stdout)["problems"])


def test_a_word_no_version_ever_wrote_is_one_sentence(trimtab: Trimtab, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE decisions SET mode = 'x'")
    for arguments in (["decisions", "list"], ["explain", "demo:weights:1"]):
        told = trimtab(*arguments)
        assert told.exit_code == 1
        assert told.output.startswith("Error: ")
        assert told.output.count("\n") == 1


def test_an_instant_beyond_the_calendar_is_shown_all_the_same(trimtab: Trimtab, file: Path) -> None:
    change(file, "UPDATE decisions SET decided_at = 9223372036854775807")
    told = trimtab("decisions", "list", "--all")
    assert (told.exit_code, "9223372036855 s" in told.output) == (0, True)


@pytest.mark.parametrize("since", ["99999999999d", "\N{SUPERSCRIPT TWO}d"])
def test_a_time_out_of_all_bounds_is_a_usage_error(trimtab: Trimtab, since: str) -> None:
    told = trimtab("decisions", "list", "--since", since)
    assert (told.exit_code, "is no time" in told.output) == (2, True)


def test_a_number_beyond_the_database_is_told_in_words(trimtab: Trimtab) -> None:
    told = trimtab("decisions", "show", f"demo:weights:{10**30}:chat-8b")
    assert (told.exit_code, "too large" in told.output) == (1, True)


def test_a_folder_that_cannot_be_made_is_a_mistake_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(main, ["db", "upgrade", "--database", str(tmp_path / "file" / "new" / "x.db")])
    assert (told.exit_code, "cannot be made" in told.output) == (1, True)


def test_an_empty_record_is_a_sentence_and_not_a_bare_head(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    CliRunner().invoke(main, ["db", "upgrade", "--database", url])
    result = CliRunner().invoke(main, ["decisions", "list", "--database", url])
    assert (result.exit_code, "No decision matches" in result.output) == (0, True)


def test_hand_made_cycles_explain_themselves_although_their_codes_have_no_words(tmp_path: Path) -> None:
    record = open_record(f"sqlite:///{tmp_path / 'made.db'}", "demo")
    record.ledger.record(made(answer(weight(), code="a_code_of_tomorrow")))
    record.lease.release()
    record.close()
    result = CliRunner().invoke(
        main, ["explain", "demo:weights:1:chat-8b", "--database", f"sqlite:///{tmp_path / 'made.db'}"]
    )
    assert (result.exit_code, "a code of tomorrow" in result.output) == (0, True)
