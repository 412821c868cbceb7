"""`trimtab rules scrape`: a configuration that Prometheus takes, or words about what is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from controlplane.cli.main import main

FLEET = [
    "rules",
    "scrape",
    "--cluster",
    "demo",
    "--engines",
    "engines.json",
    "--gpus",
    "http://127.0.0.1:9/sd",
]
DOOR = ["--gateway", "door-1=127.0.0.1:8405", "--door", "door-1=127.0.0.1:9405"]


def test_each_kind_of_target_is_a_job_with_its_labels() -> None:
    told = CliRunner().invoke(main, [*FLEET, *DOOR, "--trimtab", "127.0.0.1:9750", "--interval", "5s"])
    assert told.exit_code == 0, told.output
    config = yaml.safe_load(told.output)
    assert config["global"]["scrape_interval"] == "5s"
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == {"engines", "gpus", "gateways", "doors", "trimtab"}
    for name, address in (("gateways", "127.0.0.1:8405"), ("doors", "127.0.0.1:9405")):
        (target,) = jobs[name]["static_configs"]
        assert target == {"targets": [address], "labels": {"cluster": "demo", "gateway": "door-1"}}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_prometheus_takes_it(tmp_path: Path) -> None:
    (tmp_path / "engines.json").write_text("[]")
    config = tmp_path / "prometheus.yml"
    told = CliRunner().invoke(main, [*FLEET, *DOOR, "--alertmanager", "127.0.0.1:9093"])
    config.write_text(told.output)
    assert "127.0.0.1:9093" in told.output
    done = subprocess.run(
        ["promtool", "check", "config", "--lint-fatal", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gateway", "door-1"], "is no NAME=HOST:PORT"),
        (["--gateway", "door-1=127.0.0.1:0"], "is no NAME=HOST:PORT"),
        (["--gateway", "=127.0.0.1:80"], "is no NAME=HOST:PORT"),
        (["--door", "door-2=127.0.0.1:9405"], "no --gateway has this name"),
        (["--interval", "soon"], "is no duration"),
    ],
)
def test_what_is_wrong_is_said_in_words(options: list[str], said: str) -> None:
    told = CliRunner().invoke(main, [*FLEET, *options])
    assert (told.exit_code, said in told.output) == (2, True)


def test_rules_in_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    told = CliRunner().invoke(main, ["rules", "check", str(tmp_path / "pipe.yaml")])
    assert (told.exit_code, "pipe.yaml: is a pipe, allowed: a file" in told.output) == (1, True)
