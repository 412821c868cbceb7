"""The demonstration loads the shipped alert, in whole, and only sooner."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.binaries import find
from controlplane.demo.alerts import FILE, folder, shortened
from controlplane.demo.fleet import ALERT, HELD_S
from controlplane.ports import InvalidConfig


def rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


SHIPPED = rules((folder() / FILE).read_text("utf-8"))
SHORT = rules(shortened(ALERT, HELD_S))


def test_one_alert_is_left_and_it_differs_from_the_shipped_one_only_in_how_long_it_holds() -> None:
    short = [rule for rule in SHORT if "alert" in rule]
    shipped = [
        rule for rule in SHIPPED if rule.get("alert") == ALERT and rule["labels"]["severity"] == "page"
    ]
    assert len(short) == len(shipped) == 1
    assert short[0]["for"] == "10s"
    assert {**short[0], "for": shipped[0]["for"]} == shipped[0]


def test_what_the_shipped_rules_record_stays_as_it_is() -> None:
    assert [rule for rule in SHORT if "record" in rule] == [rule for rule in SHIPPED if "record" in rule]


def test_a_name_that_is_not_shipped_leaves_no_alert() -> None:
    assert not [rule for rule in rules(shortened("NoSuchAlert", HELD_S)) if "alert" in rule]


@pytest.mark.real
def test_prometheus_accepts_the_shortened_file(tmp_path: Path) -> None:
    try:
        promtool = find("promtool")
    except InvalidConfig:
        pytest.skip("promtool is not here")
    path = tmp_path / "alerts.yaml"
    path.write_text(shortened(ALERT, HELD_S), encoding="utf-8")
    said = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, timeout=30, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
