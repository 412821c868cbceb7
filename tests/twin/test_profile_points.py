"""The twin's step times against the published points that its profiles claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.twin.compare import PROFILES, compare, play, points_file
from controlplane.twin.live.fleet import costs_from
from tests.support import SHARED

QUICK = 17_000
"""Tokens in one round: the larger points take minutes, and stand in docs/twin.md."""

published = pytest.mark.skipif(
    not points_file(SHARED).exists(), reason="the published points are not beside this checkout"
)


@published
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_step_times_meet_the_published_points_within_the_stated_error(profile: str) -> None:
    compared = compare(profile, points_file(SHARED), largest=QUICK)
    assert len(compared.rows) >= 5
    assert compared.mean_absolute <= PROFILES[profile].stated_error


@published
def test_the_comparison_would_see_a_profile_that_is_a_tenth_off(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = replace(costs_from("llama-3.1-70b-h100-tp2", 256), f=1.1)
    monkeypatch.setattr("controlplane.twin.compare.costs_from", lambda *_a, **_k: slower)
    compared = compare("llama-3.1-70b-h100-tp2", points_file(SHARED), largest=QUICK)
    assert compared.mean_absolute > PROFILES["llama-3.1-70b-h100-tp2"].stated_error


def test_a_lone_client_is_played_at_the_bare_step_time() -> None:
    costs = costs_from("llama-3.1-8b-h100-tp1", 256)
    step = 1.08 * (6.4 + 0.012 + 0.000044 * (100 + 51 / 2))
    assert play(costs, 1, 100, 51) == pytest.approx(step, rel=1e-3)
