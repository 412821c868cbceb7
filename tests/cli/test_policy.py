"""`trimtab policy`, as somebody at a terminal and a gate in CI meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controlplane.cli.main import main
from tests.adapters.policyfiles.files import POLICY, changed, house, write


def trimtab(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_a_good_directory_answers_0_with_a_table(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    done = trimtab("policy", "check", directory, "--profiles", profiles)
    assert done.exit_code == 0
    assert "chat" in done.stdout
    assert "1 pools" in done.stdout


def test_a_narrow_window_takes_no_name_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    directory, profiles = house(tmp_path)
    shown = trimtab("policy", "check", directory, "--profiles", profiles).stdout
    assert "instances" in shown
    assert "…" not in shown


def test_mistakes_answer_1_one_line_each(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path, chat=changed(POLICY, {"capacity.max": 1, "slo.ttft_p95": 9}))
    done = trimtab("policy", "check", directory, "--profiles", profiles)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "slo.ttft_p95: 9 (no unit), allowed" in done.stderr
    assert "1 to mend" in done.stderr


def test_machines_get_json_both_ways(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path, chat=changed(POLICY, {"limit": 300}))
    good = json.loads(trimtab("policy", "check", directory, "--profiles", profiles, "--json").stdout)
    assert good["ok"]
    assert good["pools"][0]["pool"] == "chat"
    assert "limit: 300" in good["warnings"][0]
    write(directory, "chat.yaml", changed(POLICY, {"capacity.min": 30}))
    bad = trimtab("policy", "check", directory, "--profiles", profiles, "--json")
    assert bad.exit_code == 1
    assert "capacity.min" in json.loads(bad.stdout)["problems"][0]


def test_warnings_are_said_and_pass(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path, chat=changed(POLICY, {"limit": 300}))
    done = trimtab("policy", "check", directory, "--profiles", profiles)
    assert done.exit_code == 0
    assert "warning: " in done.stderr


def test_the_fleet_file_brings_the_scrape_interval(tmp_path: Path) -> None:
    directory, profiles = house(
        tmp_path, chat=changed(POLICY, {"evidence": {"window": "30s", "max_age": "30s"}})
    )
    fleet: dict[str, object] = {
        "cluster": "demo",
        "prometheus": {"url": "http://p:9090", "scrape_interval": "10s"},
    }
    path = write(tmp_path, "fleet.yaml", fleet)
    assert trimtab("policy", "check", directory, "--profiles", profiles).exit_code == 0
    done = trimtab("policy", "check", directory, "--profiles", profiles, "--fleet", path)
    assert done.exit_code == 1
    assert "at least 4 scrape intervals (40s)" in done.stderr


def test_the_schema_is_printed_as_it_is_committed() -> None:
    committed = Path(__file__).resolve().parents[2] / "policies/schema.json"
    assert trimtab("policy", "schema").stdout == committed.read_text("utf-8")


def test_shipped_policies_fit_the_shipped_profiles_and_the_example_fleet() -> None:
    """No mistake, and no warning either: what newcomers copy should be good."""
    root = Path(__file__).resolve().parents[2]
    done = trimtab("policy", "check", root / "policies", "--fleet", root / "deploy/fleet.example.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
