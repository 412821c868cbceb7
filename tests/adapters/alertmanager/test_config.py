"""What Alertmanager is told: Alertmanager takes it, and no secret stands in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from controlplane.adapters.alertmanager.config import PagingPlan, alertmanager_config
from controlplane.cli.main import main

WEBHOOK = "http://127.0.0.1:9750/alerts"
PRINT = ["rules", "alertmanager", "--webhook", WEBHOOK, "--token-file", "/run/secrets/alerts-token"]


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not on PATH")
@pytest.mark.parametrize("options", [[], ["--group-wait", "0s", "--group-interval", "500ms"]])
def test_alertmanager_takes_it(tmp_path: Path, options: list[str]) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text(CliRunner().invoke(main, [*PRINT, *options]).stdout)
    done = subprocess.run(["amtool", "check-config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 receivers" in done.stdout
    assert "1 inhibit rules" in done.stdout


def test_pages_go_to_the_webhook_with_a_token_that_is_named_by_its_place() -> None:
    config = yaml.safe_load(alertmanager_config(PagingPlan(WEBHOOK, "token")))
    ((webhook,),) = (receiver["webhook_configs"] for receiver in config["receivers"])
    assert (webhook["url"], webhook["send_resolved"]) == (WEBHOOK, True)
    assert webhook["http_config"]["authorization"] == {"type": "Bearer", "credentials_file": "token"}


def test_alerts_are_grouped_by_what_they_are_about_and_told_when_they_were_asked_for() -> None:
    told = CliRunner().invoke(main, [*PRINT, "--group-wait", "1s", "--repeat-interval", "90m"])
    assert yaml.safe_load(told.stdout)["route"] == {
        "receiver": "trimtab",
        "group_by": ["cluster", "pool", "alertname"],
        "group_wait": "1s",
        "group_interval": "60s",
        "repeat_interval": "5400s",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--group-wait", "soon"], "is no duration"),
        (["--group-interval", "0s"], "group interval: 0s, allowed: more than 0s"),
        (["--repeat-interval", "30s"], "repeat interval: 30s, allowed: at least the group interval (60s)"),
        (["--webhook", "127.0.0.1:9750"], "allowed: http:// or https:// with a host"),
        (["--webhook", "http://me:hunter2@127.0.0.1/alerts"], "no user or password in a URL"),
        (["--webhook", f"{WEBHOOK}?token=hunter2"], "no query"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_without_a_secret(options: list[str], said: str) -> None:
    told = CliRunner().invoke(main, [*PRINT, *options])
    assert told.exit_code == 2
    assert said in told.output
    assert "hunter2" not in told.output
