"""The twin's step times against the published points that its profiles claim."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from controlplane.twin.compare import PROFILES, compare, main, play, points_file
from controlplane.twin.live.fleet import costs_from
from tests.support import SHARED

QUICK = {"llama-3.1-8b-h100-tp1": 5_000, "llama-3.1-70b-h100-tp2": 17_000, "llama-3.1-70b-h100-tp4": 17_000}
"""Tokens in one round: the larger points take minutes, and stand in docs/twin.md."""

published = pytest.mark.skipif(
    not points_file(SHARED).exists(), reason="the published points are not beside this checkout"
)


@published
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_step_times_meet_the_published_points_within_the_stated_error(profile: str) -> None:
    compared = compare(profile, points_file(SHARED), largest=QUICK[profile])
    assert len(compared.rows) >= 5
    assert compared.mean_absolute <= PROFILES[profile].stated_error


@published
def test_the_comparison_would_see_a_profile_that_is_a_tenth_off(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = "llama-3.1-70b-h100-tp2"
    slower = replace(costs_from(profile, 256), f=1.1)
    monkeypatch.setattr("controlplane.twin.compare.costs_from", lambda *_a, **_k: slower)
    compared = compare(profile, points_file(SHARED), largest=9_000)
    assert compared.mean_absolute > PROFILES[profile].stated_error


def points(path: Path, published_ms: float) -> Path:
    """A file with one point of each profile's replica, and one beside it that queued."""
    rows = []
    for profile, claim in PROFILES.items():
        own = {"gpu": "H100-SXM-80GB", "model": claim.model, "tp": claim.tp, "engine": claim.engine}
        lengths = {"isl": 100, "osl": 20, "concurrency": 1, "kind": "measured", "load": "closed"}
        true_ms = play(costs_from(profile, 256), 1, 100, 20)
        rows.append({**own, **lengths, "tpot_ms": true_ms * published_ms, "ttft_ms": 30.0})
        rows.append({**own, **lengths, "tpot_ms": 1.0, "ttft_ms": 9_000.0})
    path.write_text(json.dumps({"points": rows}), "utf-8")
    return path


@pytest.mark.parametrize(("published", "status"), [(1.0, 0), (0.8, 1)])
def test_the_command_says_how_far_off_each_profile_is_and_fails_where_it_is_too_far(
    tmp_path: Path, published: float, status: int
) -> None:
    path = points(tmp_path / "profiles.json", published)
    ran = CliRunner().invoke(main, [str(path), "--json"])
    assert ran.exit_code == status
    told = json.loads(ran.stdout)
    assert [each["profile"] for each in told] == list(PROFILES)
    assert [len(each["rows"]) for each in told] == [1, 1, 1]
    assert [each["bias"] for each in told] == pytest.approx([1 / published - 1] * 3)
    shown = CliRunner().invoke(main, [str(path)]).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["profile", *PROFILES]


def test_a_lone_client_is_played_at_the_bare_step_time() -> None:
    costs = costs_from("llama-3.1-8b-h100-tp1", 256)
    step = 1.08 * (6.4 + 0.012 + 0.000044 * (100 + 51 / 2))
    assert play(costs, 1, 100, 51) == pytest.approx(step, rel=1e-3)
