"""The step-time model of one (engine, model, GPU, tp): what one instance can carry.

Form and first figures: ServeGen/InferenceX style profile points, see each profile's
`source`. Whoever measured it, the controller treats it as an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How a figure came about."""

    MEASURED = "measured"
    MODELLED = "modelled"
    PERTURBED = "perturbed"  # a true profile with seeded errors, for demonstrations


@dataclass(frozen=True, slots=True)
class Profile:
    """Times in milliseconds, lengths in tokens.

    Step time at B running sequences of mean context `ctx`, mean uncached prompt u and
    mean output o: `f * (d0 + B * (d1 + d2*ctx + p1*u/o))`. `water_level` is the measured
    concurrency at which P95 TTFT leaves its plateau. `cold_start_p95_s`, `wake_s` in seconds.
    """

    name: str
    engine: str
    model: str
    gpu: str
    tp: int
    d0_ms: float
    d1_ms: float
    d2_ms: float
    p1_ms: float
    f: float
    ttft_overhead_ms: float
    kv_tokens: int
    max_num_seqs: int
    water_level: int
    cold_start_p95_s: float
    wake_s: float
    source: str
    date: str
    grade: Grade


START_PATIENCE, LEAST_PATIENCE_S = 3.0, 60.0


def start_patience_s(profile: Profile) -> float:
    """Seconds after which a cold start is given up: three of the profile's own, and at least a minute."""
    return max(LEAST_PATIENCE_S, START_PATIENCE * profile.cold_start_p95_s)


@dataclass(frozen=True, slots=True)
class Mix:
    """Length moments of a pool's requests, in tokens: mean prompt, E[L] and E[L^2] of output."""

    prompt_mean: float
    output_mean: float
    output_square_mean: float

    @property
    def context(self) -> float:
        """Mean context of a *running* request: prompt + E[L^2] / (2 E[L]).

        A running request is length-biased (the inspection paradox), so plain E[L]/2 is too short.
        """
        return self.prompt_mean + self.output_square_mean / (2.0 * self.output_mean)


def slope_ms(profile: Profile, mix: Mix) -> float:
    """Milliseconds of step time that one more running sequence costs, before the factor f."""
    per_output = profile.p1_ms * mix.prompt_mean / mix.output_mean
    return profile.d1_ms + profile.d2_ms * mix.context + per_output


def step_ms(profile: Profile, mix: Mix, running: float) -> float:
    """Step time in milliseconds at `running` sequences."""
    return profile.f * (profile.d0_ms + running * slope_ms(profile, mix))


def largest_concurrency(profile: Profile, mix: Mix, tpot_ms: float, ttft_ms: float) -> int:
    """B*, the most running sequences within the SLO; at least 1. Design, section 4.

    `tpot_ms` and `ttft_ms` are the targets. The TTFT bound is where overhead, prompt
    processing and one running step together meet the target.
    """
    slope = slope_ms(profile, mix)
    by_memory = profile.kv_tokens / mix.context
    by_tpot = (tpot_ms / profile.f - profile.d0_ms) / slope
    own_prefill = profile.ttft_overhead_ms + profile.f * profile.p1_ms * mix.prompt_mean
    by_ttft = ((ttft_ms - own_prefill) / profile.f - profile.d0_ms) / slope
    bound = min(float(profile.max_num_seqs), by_memory, by_tpot, by_ttft)
    return max(1, math.floor(bound))


def tokens_per_second(profile: Profile, mix: Mix, running: float) -> float:
    """What one instance generates at `running` sequences: B / step time at B."""
    return running / (step_ms(profile, mix, running) / 1000.0)
