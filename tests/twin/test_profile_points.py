"""The twin's step times against the published points that its profiles claim."""

from __future__ import annotations

import pytest
from controlplane.twin.compare import PROFILES, compare, points_file

from tests.support import SHARED

pytestmark = pytest.mark.skipif(
    not points_file(SHARED).exists(), reason="the published points are not beside this checkout"
)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_step_times_meet_the_points_within_the_stated_error(profile: str) -> None:
    error = compare(profile, points_file(SHARED))
    assert error.points >= 5
    assert error.mean_absolute <= PROFILES[profile].stated_error
