"""`trimtab pages`, as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controlplane.adapters.sql.open import open_record
from controlplane.adapters.sql.pages import SqlPages
from controlplane.cli.main import main
from controlplane.domain.ids import CycleKind
from controlplane.domain.policy import Mode
from tests.adapters.sql.pages import ended, told
from tests.adapters.sql.records import answer, made, weight
from tests.builders import NOW

Trimtab = Callable[..., Result]

LATE = "demo:1f0c2d3e4a5b6c7d:1800000000000000"
BLIND = "demo:aaaaaaaaaaaaaaaa:1800000100000000"

CODE = "routing_external"
"""A reason whose words need no figures."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages: one about a pool, which ended, with decisions around it; one about none, which fires."""
    path = tmp_path_factory.mktemp("pages") / "trimtab.db"
    record = open_record(f"sqlite:///{path}", "demo")
    for seq in (1, 2, 3):
        record.ledger.record(made(answer(weight(), mode=Mode.OBSERVE, code=CODE), seq=seq, at=NOW + 5 * seq))
    record.ledger.record(made(answer(weight(), code=CODE), seq=1, at=NOW + 20, kind=CycleKind.CAPACITY))
    pages = SqlPages(record.engine)
    pages.keep([told()], NOW + 1)
    pages.keep([ended(60)], NOW + 61)
    blind = told(
        fingerprint="a" * 16, starts_at=NOW + 100, alertname="PrometheusBlind", pool="", summary="[bold]x"
    )
    pages.keep([blind], NOW + 101)
    record.lease.release()
    record.close()
    return path


@pytest.fixture
def trimtab(template: Path, monkeypatch: pytest.MonkeyPatch) -> Trimtab:
    monkeypatch.setenv("TRIMTAB_DATABASE", f"sqlite:///{template}")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["pages", *arguments])

    return run


def listed(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [each["id"] for each in json.loads(result.stdout)]


def test_the_list_says_since_when_what_where_how_often_and_which_decision(trimtab: Trimtab) -> None:
    head, blind, late = (" ".join(line.split()) for line in trimtab().stdout.splitlines())
    assert head == "since (UTC) alert severity pool status times decision page"
    assert (
        late == f"2027-01-15T08:00:00Z P95OverTarget page chat-8b resolved 2x demo:capacity:1:chat-8b {LATE}"
    )
    assert blind == f"2027-01-15T08:01:40Z PrometheusBlind page firing 1x {BLIND}"


def test_an_id_is_whole_however_narrow_the_window(trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert "demo:capacity:1:chat-8b" in trimtab().stdout
    assert LATE in trimtab().stdout


def test_the_list_can_be_narrowed_and_goes_on_where_it_ended(trimtab: Trimtab) -> None:
    assert listed(trimtab("--json")) == [BLIND, LATE]
    assert listed(trimtab("--json", "--pool", "chat-8b")) == [LATE]
    assert listed(trimtab("--json", "--status", "firing")) == [BLIND]
    assert listed(trimtab("--json", "--since", "2027-01-15T08:00:01")) == [BLIND]
    assert f"more: --before {BLIND}" in trimtab("--limit", "1").stderr
    assert listed(trimtab("--json", "--before", BLIND)) == [LATE]
    assert "No page matches" in trimtab("--pool", "vision").stdout


def test_one_page_is_shown_with_its_runbook_and_what_changed_around_it_in_words(trimtab: Trimtab) -> None:
    lines = trimtab(LATE).stdout.splitlines()
    assert lines[0] == (
        "P95OverTarget (page) of chat-8b: resolved since 2027-01-15T08:00:00Z, "
        "ended 2027-01-15T08:01:00Z, told 2 times, last at 2027-01-15T08:01:01Z"
    )
    assert "  runbook: alerts/runbooks/P95OverTarget.md" in lines
    assert any(
        line.startswith("  decision 2027-01-15T08:00:20Z demo:capacity:1:chat-8b: chat-8b ") for line in lines
    )
    after = lines[lines.index("what changed or was held around it:") + 1 :]
    assert [line.split(": ")[0] for line in after] == [
        "  2027-01-15T08:00:05Z demo:weights:3:chat-8b",
        "  2027-01-15T08:00:20Z demo:capacity:1:chat-8b",
    ]
    assert after[0].endswith("(3x, until 2027-01-15T08:00:15Z)")


def test_one_page_as_data_has_its_decisions(trimtab: Trimtab) -> None:
    shown = json.loads(trimtab(LATE, "--json").stdout)
    assert (shown["id"], shown["status"], shown["notifications"]) == (LATE, "resolved", 2)
    assert [each["repeats"] for each in shown["around"]] == [3, 1]


def test_a_page_about_no_pool_has_no_decisions_and_its_words_are_no_markup(trimtab: Trimtab) -> None:
    said = trimtab(BLIND).stdout
    assert said.startswith(
        "PrometheusBlind (page) of no pool: firing since 2027-01-15T08:01:40Z, told once\n"
    )
    assert "[bold]x" in said
    assert "about no pool" in said


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("demo:weights:42:chat-8b",), "is no page; one looks like demo:1f0c2d3e4a5b6c7d:1796422200000000"),
        (("demo:1f0c2d3e4a5b6c7d:1",), f"is not on record; the newest of its cluster is {BLIND}"),
        (("other:1f:1",), "is not on record; nor any other of its cluster"),
        ((LATE, "--pool", "chat-8b"), "are for the list, not for one page"),
        (("--before", "x"), "is no page"),
        (("--status", "open"), "'firing', 'resolved'"),
        (("--database", "sqlite:////nowhere/t.db"), "does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_words(trimtab: Trimtab, arguments: tuple[str, ...], hint: str) -> None:
    result = trimtab(*arguments)
    assert result.exit_code != 0
    assert hint in result.output
    assert "Traceback" not in result.output
