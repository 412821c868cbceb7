"""`trimtab hold`, as somebody on call types it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controlplane.adapters.sql.open import Record, open_record
from controlplane.cli.main import main
from controlplane.domain.observation import Effect
from tests.adapters.sql.records import decided, slow_instance

Trimtab = Callable[..., Result]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with one cycle over four instances of chat-8b."""
    path = tmp_path_factory.mktemp("hold") / "trimtab.db"
    record = open_record(f"sqlite:///{path}", "demo")
    record.ledger.record(decided(slow_instance()))
    record.lease.release()
    record.close()
    return path


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(template, tmp_path / "trimtab.db"))


@pytest.fixture
def trimtab(file: Path, monkeypatch: pytest.MonkeyPatch) -> Trimtab:
    monkeypatch.setenv("TRIMTAB_DATABASE", f"sqlite:///{file}")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["hold", *arguments])

    return run


def listed(trimtab: Trimtab, *arguments: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(trimtab("list", "--json", *arguments).output)
    return rows


def place(trimtab: Trimtab, *arguments: str) -> str:
    """Say a word; answers its id."""
    result = trimtab(*arguments, "--reason", "a test", "--author", "ann")
    assert result.exit_code == 0, result.output
    return result.output.partition(":")[0]


def test_what_is_placed_is_listed_until_it_is_lifted(trimtab: Trimtab) -> None:
    assert trimtab("list").output == "Nothing is held or pinned.\n"
    hold = place(trimtab, "place", "chat-8b", "--for", "2h")
    (row,) = listed(trimtab)
    assert (row["id"], row["effect"], row["pool"], row["author"]) == (hold, "hold", "chat-8b", "ann")
    assert row["until"] == pytest.approx(float(str(row["since"])) + 7200.0, abs=5.0)
    assert trimtab("lift", hold, "--reason", "over").exit_code == 0
    assert listed(trimtab) == []
    (ended,) = listed(trimtab, "--all")
    assert ended["lifted_at"] is not None
    assert f"there is no hold {hold} in force" in trimtab("lift", hold, "--reason", "again").output


def test_the_running_controllers_next_look_carries_it(trimtab: Trimtab, file: Path) -> None:
    """The controller leads while somebody types: a second, short writer beside it."""
    record = open_record(f"sqlite:///{file}", "demo")
    try:
        assert record.ledger.holds(time.time()) == []
        place(trimtab, "place", "--fleet")
        place(trimtab, "pin", "chat-8b", "7", "--for", "1d")
        place(trimtab, "weight", "chat-8b-04", "50")
        said = seen(record)
    finally:
        record.lease.release()
        record.close()
    assert said == [
        (Effect.HOLD, None, None, None),
        (Effect.PIN_INSTANCES, "chat-8b", None, 7),
        (Effect.PIN_WEIGHT, "chat-8b", "demo/chat-8b-04@s9k2x1", 50),
    ]


def seen(record: Record) -> list[tuple[object, ...]]:
    words = record.ledger.holds(time.time())
    return [(each.effect, each.pool, each.instance, each.level) for each in words]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["place", "chat-8c"], "there is no pool chat-8c; there are chat-8b"),
        (["pin", "chat-8c", "3"], "there is no pool chat-8c; there are chat-8b"),
        (["weight", "chat-8b-09", "50"], "no instance of the last cycle is called chat-8b-09"),
        (["place"], "name a POOL, or say --fleet"),
        (["place", "chat-8b", "--fleet"], "name a POOL, or say --fleet"),
        (["pin", "chat-8b", "-1"], "No such option"),
        (["pin", "chat-8b", "10001"], "10001 is not in the range 0<=x<=10000"),
        (["weight", "chat-8b-01", "0"], "0 is not in the range 1<=x<=200"),
        (["place", "chat-8b", "--for", "2w"], "'2w'; allowed: 1s to 30d"),
        (["place", "chat-8b", "--for", "0s"], "'0s'; allowed: 1s to 30d"),
        (["place", "chat-8b", "--for", "31d"], "'31d'; allowed: 1s to 30d"),
        (["place", "chat-8b", "--author", " "], "allowed: 1 to 500 printable characters"),
        (["place", "chat-8b", "--author", "a\x1b[31m"], "allowed: 1 to 500 printable characters"),
    ],
)
def test_a_slip_is_told_at_once_and_nothing_is_placed(
    trimtab: Trimtab, command: list[str], said: str
) -> None:
    result = trimtab(*command, "--reason", "a test")
    assert result.exit_code in {1, 2}
    assert said in " ".join(result.output.split())
    assert listed(trimtab, "--all") == []


def test_a_word_without_a_reason_is_refused(trimtab: Trimtab) -> None:
    assert "Missing option '--reason'" in trimtab("place", "chat-8b").output


def test_a_record_that_no_controller_has_used_has_nothing_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new.db"
    record = open_record(f"sqlite:///{file}", "demo")
    record.lease.release()
    record.close()
    monkeypatch.setenv("TRIMTAB_DATABASE", str(file))
    result = CliRunner().invoke(main, ["hold", "place", "chat-8b", "--reason", "a test"])
    assert result.exit_code == 1
    assert "no controller has run on this record yet" in result.output


def test_a_hostile_reason_is_text_and_no_markup(trimtab: Trimtab) -> None:
    result = trimtab("place", "chat-8b", "--reason", "[red]gone[/red] 'x\"; DROP TABLE holds")
    assert result.exit_code == 0
    assert "[red]gone[/red]" in trimtab("list").output


def test_what_people_did_stays_on_record(trimtab: Trimtab, file: Path) -> None:
    hold = place(trimtab, "pin", "chat-8b", "7")
    trimtab("lift", hold, "--reason", "over", "--author", "ben")
    record = open_record(f"sqlite:///{file}", "demo")
    with record.engine.connect() as connection:
        acts = connection.exec_driver_sql("SELECT author, act, subject, reason FROM acts ORDER BY at").all()
    record.lease.release()
    record.close()
    assert [tuple(each) for each in acts] == [
        ("ann", "pin_instances", "chat-8b 7", "a test"),
        ("ben", "lift", "chat-8b 7", "over"),
    ]
