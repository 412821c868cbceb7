"""Profiles of a demonstration: the twin's truth, and the controller's wrong idea of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, replace

import yaml

from controlplane.domain.profile import Grade, Mix, Profile, largest_concurrency
from controlplane.traffic.mix import CostForm

ERROR = 0.20
"""Largest relative error of one coefficient."""

COEFFICIENTS = ("d0_ms", "d1_ms", "d2_ms", "p1_ms", "f", "ttft_overhead_ms")


def truth(shipped: Profile, seats: int) -> Profile:
    """The shipped profile on an engine that runs at most `seats` sequences at once."""
    return replace(shipped, max_num_seqs=seats, water_level=min(seats, shipped.water_level))


def perturbed(profile: Profile, seed: int) -> Profile:
    """The same profile with an error of up to `ERROR` in every coefficient, drawn by name and seed.

    The number of seats stays: it is the engine's own setting, and everybody knows it.
    """
    rng = random.Random(f"{seed}/{profile.name}")  # noqa: S311 - an error on purpose, no secret
    wrong = {key: getattr(profile, key) * (1.0 + rng.uniform(-ERROR, ERROR)) for key in COEFFICIENTS}
    source = f"{profile.source[:200]}; each coefficient up to {ERROR:.0%} off, seed {seed}"
    return replace(profile, **wrong, source=source, grade=Grade.PERTURBED)


def profile_text(profile: Profile) -> str:
    """A profile file."""
    facts: Mapping[str, object] = {**asdict(profile), "grade": profile.grade.value}
    return yaml.safe_dump(dict(facts), sort_keys=False, width=4096)


def request_cost(profile: Profile) -> CostForm:
    """Instance-seconds that a request takes of an instance whose seats are all taken.

    `tau(B) = f*(d0 + B*(d1 + d2*ctx + p1*u/o))`, at B = max_num_seqs, which is what bounds here.
    """
    each_ms = profile.d0_ms / profile.max_num_seqs + profile.d1_ms
    return CostForm(
        prompt=profile.f * profile.p1_ms / 1e3,
        output=profile.f * each_ms / 1e3,
        output_context=profile.f * profile.d2_ms / 1e3,
    )


def seats_bind(profile: Profile, mix: Mix, tpot_s: float, ttft_s: float) -> bool:
    """Whether the number of seats, and nothing else, bounds an instance within its targets."""
    return largest_concurrency(profile, mix, tpot_s * 1e3, ttft_s * 1e3) == profile.max_num_seqs
