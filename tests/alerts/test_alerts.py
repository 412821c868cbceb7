"""Compiled rules are what the code renders, Prometheus accepts them, and every alert has its page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from alerts import render
from alerts.lib import Alert
from alerts.rules import capacity, loop, pools
from controlplane.cli.main import main

ALERTS = Path(__file__).resolve().parents[2] / "alerts"
EVERY = (*loop.ALERTS, *pools.ALERTS, *capacity.ALERTS)

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")


@pytest.mark.parametrize("name", sorted(render.files()))
def test_the_committed_rules_are_what_the_code_renders(name: str) -> None:
    """After a change: `python -m alerts.render`."""
    assert (ALERTS / "compiled" / name).read_text("utf-8") == render.files()[name]


def test_nothing_lies_among_the_compiled_rules_that_nobody_renders() -> None:
    assert {path.name for path in (ALERTS / "compiled").iterdir()} == set(render.files())


@needs_promtool
@pytest.mark.parametrize("name", sorted(render.files()))
def test_prometheus_accepts_the_rules(name: str) -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint-fatal", ALERTS / "compiled" / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("path", sorted((ALERTS / "tests").glob("*.yaml")), ids=lambda path: path.stem)
def test_rules_do_what_their_scenarios_say(path: Path) -> None:
    """Each scenario is quiet the moment before, and speaks the moment after."""
    done = subprocess.run(
        ["promtool", "test", "rules", path.name], cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_every_alert_has_a_page_and_a_scenario_on_both_sides_of_its_edge(alert: Alert) -> None:
    page = (ALERTS / "runbooks" / f"{alert.name}.md").read_text("utf-8")
    assert page.startswith(f"# {alert.name}\n")
    cases = [
        [fired["exp_labels"]["severity"] for fired in case["exp_alerts"]]
        for path in (ALERTS / "tests").glob("*.yaml")
        for test in yaml.safe_load(path.read_text("utf-8"))["tests"]
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == alert.name
    ]
    assert any(alert.severity in severities for severities in cases)
    assert any(not severities for severities in cases)


def test_nothing_lies_among_the_runbooks_that_no_alert_names() -> None:
    assert {path.stem for path in (ALERTS / "runbooks").iterdir()} == {alert.name for alert in EVERY}


@pytest.mark.parametrize("path", sorted((ALERTS / "runbooks").iterdir()), ids=lambda path: path.stem)
def test_runbooks_name_commands_and_options_that_exist(path: Path) -> None:
    for line in re.findall(r"`trimtab ([^`]+)`", path.read_text("utf-8")):
        command: click.Command = main
        words = line.split()
        while isinstance(command, click.Group):
            named = command.get_command(click.Context(command), words.pop(0))
            assert named is not None, line
            command = named
        options = {name for each in command.params for name in each.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize("alert", capacity.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_about_capacity_says_where_and_how_many_gpus(alert: Alert) -> None:
    for part in ("GPUs", "$labels.cluster", "$value", *(["$labels.pool"] if "pool" in alert.expr else [])):
        assert part in alert.summary


@pytest.mark.parametrize("alert", pools.ALERTS, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_an_alert_about_a_pool_says_which_pool_where_what_value_and_what_bound(alert: Alert) -> None:
    for part in ("$labels.pool", "$labels.cluster", "$value"):
        assert part in alert.summary
    assert "the bound is 0.30" in alert.summary or "its target is" in alert.summary
