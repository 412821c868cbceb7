"""The published traces beside the checkout are read and scaled. Facts are those of their own page."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.traffic.readers import read_trace
from controlplane.traffic.scale import REQUESTS, Target, Window, scale_to
from controlplane.traffic.statistics import describe

PUBLISHED = {  # requests, mean requests/s, prompt P95, output P50
    "azure2023_conv": (19_366, 5.53, 4083, 129),
    "mooncake_conversation": (12_031, 3.40, 39_550, 350),
    "servegen_fleet8_24h_x1_20": (361_809, 4.19, 1208, 10),
    "azure2024_code_week_recon_x1_40": (419_750, 0.69, 7653, 8),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_trace_has_its_published_figures(shared: Path, name: str) -> None:
    requests, rate, prompt_p95, output_p50 = PUBLISHED[name]
    found = describe(read_trace(shared / "traces" / f"{name}.parquet"))
    assert found["requests"] == requests
    assert found["mean_rate"] == pytest.approx(rate, abs=0.006)
    assert found["prompt_tokens"]["p95"] == pytest.approx(prompt_p95, abs=2)
    assert found["output_tokens"]["p50"] == pytest.approx(output_p50, abs=1)


def test_the_azure_hour_fills_a_pool_to_85_percent_at_its_peak(shared: Path) -> None:
    trace = read_trace(shared / "traces" / "azure2023_conv.parquet")
    played = scale_to(trace, Window(300), Target(REQUESTS, capacity=24.0))
    assert played.copies >= 2
    assert 0.99 * 0.85 * 24 < played.peak <= 0.85 * 24
