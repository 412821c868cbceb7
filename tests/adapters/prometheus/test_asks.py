"""The queries' own text, evaluated by promtool where the real server would need minutes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from controlplane.adapters.engines.template import Rendering
from controlplane.adapters.prometheus.asks import Mode, asks
from controlplane.domain.ids import CycleKind

LABELS = 'cluster="c",pool="p",instance_id="c/a@1"'
ELSEWHERE = 'cluster="d",pool="p",instance_id="d/a@1"'
AGE = "trimtab:instance:engine_age_seconds"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_rules_that_stand_still_make_their_readings_older(tmp_path: Path) -> None:
    """An age recorded once as 2 s is 2 s at that moment and 62 s a minute later; other clusters stay out."""
    (ask,) = asks(CycleKind.WEIGHTS)
    query = ask.promql(Mode.RECORDED, Rendering(60.0, 5.0, cluster="c"))
    scenario = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": f"{AGE}{{{LABELS}}}", "values": "2 _x8"},
                    {"series": f"{AGE}{{{ELSEWHERE}}}", "values": "2 _x8"},
                ],
                "promql_expr_test": [_aged(query, "0s", 2), _aged(query, "1m", 62)],
            }
        ],
    }
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(scenario))
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "t.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _aged(query: str, at: str, age_s: float) -> dict[str, object]:
    grown = {"labels": f'{{{LABELS},series="{AGE}"}}', "value": age_s}
    return {"expr": query, "eval_time": at, "exp_samples": [grown]}
