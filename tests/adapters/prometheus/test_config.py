"""The rendered prometheus.yml: valid, keeps what is read, and carries the labels of the fleet."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from controlplane.adapters.engines import families
from controlplane.adapters.engines.template import Source
from controlplane.adapters.prometheus.config import ScrapePlan, prometheus_config


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
@pytest.mark.parametrize("place", ["engines.json", "http://127.0.0.1:9000/sd/engines"])
def test_prometheus_accepts_it(tmp_path: Path, place: str) -> None:
    (tmp_path / "engines.json").write_text("[]")
    (tmp_path / "r.yaml").write_text("groups: []\n")
    plan = ScrapePlan('a"b', place, place, {"g 1": "127.0.0.1:1"}, 1.5, ["r.yaml"], "127.0.0.1:9750")
    (tmp_path / "prometheus.yml").write_text(prometheus_config(plan))
    command: list[str | Path] = ["promtool", "check", "config", "--lint-fatal", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_job_keeps_what_its_templates_read_and_drops_the_rest() -> None:
    plan = ScrapePlan("demo", "e.json", "g.json", {"g1": "127.0.0.1:1"}, doors={"g1": "127.0.0.1:2"})
    jobs = {job["job_name"]: job for job in yaml.safe_load(prometheus_config(plan))["scrape_configs"]}
    sources = {"engines": Source.ENGINE, "gpus": Source.GPU, "gateways": Source.GATEWAY}
    for name, source in sources.items():
        keep = re.compile(jobs[name]["metric_relabel_configs"][0]["regex"])
        assert all(keep.fullmatch(family) for family in families(source))
        assert not keep.fullmatch("vllm:iteration_tokens_total_bucket")
    assert jobs["gpus"]["honor_labels"] is True
    assert jobs["gateways"]["params"] == {"scope": ["backend"]}
    assert jobs["gateways"]["static_configs"][0]["labels"] == {"cluster": "demo", "gateway": "g1"}
    assert jobs["doors"]["static_configs"] == [
        {"targets": ["127.0.0.1:2"], "labels": {"cluster": "demo", "gateway": "g1"}}
    ]
    assert "trimtab" not in jobs
    without = ScrapePlan("demo", "e.json", "g.json", {"g1": "127.0.0.1:1"})
    assert "job_name: doors" not in prometheus_config(without)
