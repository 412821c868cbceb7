"""`trimtab rules`: writes rules for a window, and tells a file that is not ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from controlplane.cli.rules import command


def test_without_options_it_prints_the_shipped_rules(tmp_path: Path) -> None:
    compiled = Path(__file__).resolve().parents[2] / "alerts/compiled/recording.yaml"
    assert CliRunner().invoke(command, ["render"]).output == compiled.read_text("utf-8")


def test_what_it_writes_it_also_accepts(tmp_path: Path) -> None:
    written = CliRunner().invoke(
        command, ["render", "--window", "1m", "--interval", "1500ms", "--out", str(tmp_path)]
    )
    assert written.exit_code == 0, written.output
    checked = CliRunner().invoke(command, ["check", str(tmp_path / "recording.yaml")])
    assert (checked.exit_code, "as this version renders it" in checked.output) == (0, True)


@pytest.mark.parametrize(("window", "code"), [("59s", 2), ("60s", 0)])
def test_a_window_of_fewer_than_four_scrapes_is_refused(window: str, code: int) -> None:
    done = CliRunner().invoke(command, ["render", "--window", window, "--interval", "15s"])
    assert done.exit_code == code
    assert ("at least 4 scrapes, so at least 60s" in done.output) == (code == 2)


@pytest.mark.parametrize("text", ["5", "-1s", "5 minutes", "", "nan"])
def test_a_span_without_a_unit_is_refused_with_what_is_allowed(text: str) -> None:
    done = CliRunner().invoke(command, ["render", "--window", text])
    assert done.exit_code == 2
    assert "allowed: a number with ms, s, m, h or d" in done.output


def test_a_changed_a_missing_and_a_foreign_rule_are_all_named_at_once(tmp_path: Path) -> None:
    text = CliRunner().invoke(command, ["render"]).output
    text = text.replace("trimtab:instance:waiting_requests", "somebody:else")
    text = text.replace(
        "max by (cluster, pool, instance_id) (up{", "min by (cluster, pool, instance_id) (up{"
    )
    (tmp_path / "r.yaml").write_text(text)
    done = CliRunner().invoke(command, ["check", "--json", str(tmp_path / "r.yaml")])
    problems = json.loads(done.output)["problems"]
    assert done.exit_code == 1
    assert [
        any(word in problem for problem in problems) for word in ("is missing", "differs", "not ours")
    ] == [True] * 3


@pytest.mark.parametrize("text", ["", "groups: 7", "{", "groups:\n- name: trimtab-recording\n", "\x00"])
def test_a_file_that_is_no_rule_file_of_ours_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    done = CliRunner().invoke(command, ["check", str(tmp_path / "r.yaml")])
    assert done.exit_code == 1
    assert str(tmp_path / "r.yaml") in done.output
