"""`trimtab loans`, as somebody types it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controlplane.adapters.sql.open import open_record
from controlplane.cli.loans import span
from controlplane.cli.main import main
from controlplane.domain.ids import PoolName
from controlplane.domain.loans import BUFFER, Code
from tests.adapters.sql.lent import booking, entry

Trimtab = Callable[..., Result]

THEN = 1_700_000_000.0
"""2023-11-14T22:13:20Z."""

VISION = PoolName("vision")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chat has three GPUs of the buffer in two loans, vision has one of chat, and one loan was returned."""
    path = tmp_path_factory.mktemp("loans") / "trimtab.db"
    record = open_record(f"sqlite:///{path}", "demo")
    found = entry("vision-01", borrower=VISION, lender=PoolName("chat-8b"), code=Code.FOUND)
    record.ledger.record(booking(entry(), entry("chat-8b-s02", gpus=2), seq=41, at=THEN))
    record.ledger.record(booking(found, entry("chat-8b-s03", gpus=4), seq=42, at=THEN + 60))
    record.ledger.record(booking(entry("chat-8b-s03", gpus=4, opens=False), seq=43, at=THEN + 260))
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
        return CliRunner().invoke(main, ["loans", *arguments])

    return run


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def instances(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [
        each["instance"].partition("/")[2].partition("@")[0] for each in json.loads(result.stdout)["loans"]
    ]


def test_open_loans_say_who_has_what_of_whom_since_when_and_by_which_decision(trimtab: Trimtab) -> None:
    head, vision, first, second, *sums = lines(trimtab())
    assert head == "pool of instance node GPUs since (UTC) for why decision"
    assert vision.startswith("vision chat-8b demo/vision-01@s9k2x1 n2 1 2023-11-14T22:14:20Z ")
    assert vision.endswith("found there already demo:capacity:42:vision")
    assert first.startswith("chat-8b buffer demo/chat-8b-s01@s9k2x1 n2 1 2023-11-14T22:13:20Z ")
    assert first.endswith("a move brings it up demo:capacity:41:chat-8b")
    assert second.startswith("chat-8b buffer demo/chat-8b-s02@s9k2x1 n2 2 ")
    assert sums == [
        "chat-8b has 3 GPUs of buffer in 2 loans",
        "vision has 1 GPU of chat-8b in 1 loan",
        "open in all: 4 GPUs in 3 loans",
    ]


def test_closed_ones_stand_with_their_end_and_do_not_count_in_the_sums(trimtab: Trimtab) -> None:
    assert instances(trimtab("--json")) == ["vision-01", "chat-8b-s01", "chat-8b-s02"]
    assert instances(trimtab("--json", "--all"))[:2] == ["chat-8b-s03", "vision-01"]
    told = lines(trimtab("--all"))
    assert told[0].endswith("decision closed (UTC)")
    assert told[1].endswith("3m 20s a move brings it up demo:capacity:42:chat-8b 2023-11-14T22:17:40Z")
    assert told[-1] == "open in all: 4 GPUs in 3 loans"


def test_all_of_them_are_shown_up_to_the_limit_and_that_is_said(trimtab: Trimtab) -> None:
    assert instances(trimtab("--json", "--all", "--limit", "1")) == ["chat-8b-s03"]
    assert trimtab("--all", "--limit", "4").stderr == "there may be more: --limit 8\n"
    assert trimtab("--all", "--limit", "5").stderr == ""


def test_a_pools_loans_are_those_it_has_and_those_it_gave(trimtab: Trimtab) -> None:
    assert instances(trimtab("--json", "--pool", "vision")) == ["vision-01"]
    assert instances(trimtab("--json", "--pool", "chat-8b")) == ["vision-01", "chat-8b-s01", "chat-8b-s02"]
    assert instances(trimtab("--json", "--pool", BUFFER)) == ["chat-8b-s01", "chat-8b-s02"]


def test_as_data_a_loan_has_its_codes_its_instants_and_the_sums_beside_it(trimtab: Trimtab) -> None:
    told = json.loads(trimtab("--json", "--all", "--pool", "chat-8b", "--limit", "1").stdout)
    assert told == {
        "loans": [
            {
                "id": "demo:capacity:42:demo/chat-8b-s03@s9k2x1",
                "pool": "chat-8b",
                "lender": "buffer",
                "instance": "demo/chat-8b-s03@s9k2x1",
                "node": "n2",
                "gpus": 4,
                "since": "2023-11-14T22:14:20Z",
                "code": "loan_surge",
                "decision": "demo:capacity:42:chat-8b",
                "due_at": None,
                "closed_at": "2023-11-14T22:17:40Z",
                "closed_by": "demo:capacity:43",
                "close_code": "loan_returned",
            }
        ],
        "open": [
            {"pool": "chat-8b", "lender": "buffer", "gpus": 3, "loans": 2},
            {"pool": "vision", "lender": "chat-8b", "gpus": 1, "loans": 1},
        ],
        "open_gpus": 4,
        "open_loans": 3,
    }


def test_a_due_date_stands_beside_the_age(trimtab: Trimtab, file: Path) -> None:
    assert "due" not in trimtab().stdout
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE loans SET due_at = opened_at + 3600000000 WHERE instance LIKE '%s01%'")
    assert "due 2023-11-14T23:13:20Z" in trimtab().stdout


def test_nothing_lent_is_said_in_words_and_as_data(trimtab: Trimtab) -> None:
    assert lines(trimtab("--pool", "reason-70b")) == ["No loan of reason-70b is open."]
    assert lines(trimtab("--pool", "reason-70b", "--all")) == ["No loan of reason-70b is on record."]
    nothing = {"loans": [], "open": [], "open_gpus": 0, "open_loans": 0}
    assert json.loads(trimtab("--pool", "reason-70b", "--json").stdout) == nothing


def test_an_empty_record_has_no_loan_and_nothing_in_its_balances(trimtab: Trimtab, tmp_path: Path) -> None:
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    assert CliRunner().invoke(main, ["db", "upgrade", "--database", empty]).exit_code == 0
    assert lines(trimtab("--database", empty)) == ["No loan is open."]
    said = "balances of all entries: nothing is lent; their sum is 0"
    assert lines(trimtab("--entries", "--database", empty)) == [said]


def test_the_entries_show_both_sides_and_that_they_sum_to_zero(trimtab: Trimtab) -> None:
    head, back, gone, *rest = lines(trimtab("--entries"))
    assert head == "time (UTC) account GPUs loan"
    assert back == "2023-11-14T22:17:40Z buffer +4 demo:capacity:42:demo/chat-8b-s03@s9k2x1"
    assert gone == "2023-11-14T22:17:40Z chat-8b -4 demo:capacity:42:demo/chat-8b-s03@s9k2x1"
    assert len(rest) == 9
    assert rest[-1] == "balances of all entries: buffer -3, chat-8b +2, vision +1; their sum is 0"
    told = json.loads(trimtab("--entries", "--json", "--limit", "2", "--pool", "vision").stdout)
    assert [(each["account"], each["gpus"]) for each in told["entries"]] == [("vision", 1)]
    assert (told["sum"], told["broken"]) == (0, [])
    assert told["balances"] == {"buffer": -3, "chat-8b": 2, "vision": 1}


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_a_ledger_that_somebody_damaged_is_named_and_ends_with_a_status(
    trimtab: Trimtab, file: Path, extra: tuple[str, ...]
) -> None:
    assert trimtab("--entries", *extra).exit_code == 0
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TRIGGER loan_entries_no_delete")
        connection.execute("DELETE FROM loan_entries WHERE n = 1 AND loan_id LIKE '%vision%'")
    said = trimtab("--entries", *extra)
    assert said.exit_code == 1
    assert "the ledger is damaged" in said.stderr
    assert "demo:capacity:42:demo/vision-01@s9k2x1" in said.stderr
    checked = CliRunner().invoke(main, ["db", "check"])
    assert "the ledger: loan demo:capacity:42:demo/vision-01@s9k2x1 lacks an entry" in checked.stdout


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m 0s"),
        (3600, "1h 0m"),
        (97_200, "1d 3h"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--limit", "3"), "--limit is for --all and --entries"),
        (("--all", "--entries"), "leave --all out"),
        (("--pool", "No Pool"), "a DNS label"),
        (("--all", "--limit", "0"), "1<=x<=10000"),
        (("--database", "sqlite:////nowhere/t.db"), "does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_words(trimtab: Trimtab, arguments: tuple[str, ...], hint: str) -> None:
    result = trimtab(*arguments)
    assert result.exit_code != 0
    assert hint in result.output
    assert "Traceback" not in result.output
