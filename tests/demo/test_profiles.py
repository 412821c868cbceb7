"""The controller's idea of the fleet is wrong on purpose, by a known amount."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.policyfiles.profilefile import load_profiles
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.demo import fleet
from controlplane.demo.profiles import COEFFICIENTS, ERROR, perturbed, profile_text, request_cost, truth
from controlplane.domain.profile import Grade, Mix, tokens_per_second
from controlplane.traffic.scale import Cost
from controlplane.traffic.trace import Trace
from controlplane.twin.live.fleet import SMALL

SHIPPED = load_profiles()
CHAT = truth(SHIPPED["llama-3.1-8b-h100-tp1"], 6)


@given(st.integers(0, 10_000))
def test_every_coefficient_is_off_by_at_most_the_stated_share_and_by_something(seed: int) -> None:
    wrong = perturbed(CHAT, seed)
    errors = [getattr(wrong, key) / getattr(CHAT, key) - 1.0 for key in COEFFICIENTS]
    assert all(abs(error) <= ERROR + 1e-12 for error in errors)
    assert any(abs(error) > 0.001 for error in errors)
    assert wrong.grade is Grade.PERTURBED


def test_errors_are_the_same_for_the_same_seed_and_differ_between_seeds_and_profiles() -> None:
    other = truth(SHIPPED["vision-12b-h100-tp2"], 6)
    assert perturbed(CHAT, 1) == perturbed(CHAT, 1)
    assert perturbed(CHAT, 1).f != perturbed(CHAT, 2).f
    assert perturbed(CHAT, 1).f / CHAT.f != perturbed(other, 1).f / other.f


def test_what_the_engine_is_set_to_is_known_and_not_off() -> None:
    assert CHAT.max_num_seqs == 6
    assert perturbed(CHAT, 3).max_num_seqs == 6
    assert perturbed(CHAT, 3).kv_tokens == CHAT.kv_tokens


def test_policies_and_profiles_of_every_pool_pass_the_products_own_checks(tmp_path: Path) -> None:
    for plan in SMALL:
        wrong = perturbed(truth(SHIPPED[plan.profile], plan.seats), 1)
        _write(tmp_path / "profiles" / f"{plan.profile}.yaml", profile_text(wrong))
        _write(tmp_path / "policies" / f"{plan.name}.yaml", fleet.policy_text(plan))
    policies = PolicyDirectory(tmp_path / "policies", tmp_path / "profiles", fleet.SCRAPE_S).load()
    assert set(policies.pools) == {plan.name for plan in SMALL}
    assert {each.limit for each in policies.pools.values()} == {plan.seats for plan in SMALL}
    assert all(each.grade is Grade.PERTURBED for each in policies.profiles.values())


@pytest.mark.parametrize(("prompt", "output"), [(1000, 200), (4000, 50), (10, 900)])
def test_a_requests_cost_is_its_share_of_a_full_instance(prompt: int, output: int) -> None:
    """Requests of one length, as fast as a full instance makes their tokens, cost one instance."""
    import numpy as np

    mix = Mix(prompt, output, output**2)
    a_second = tokens_per_second(CHAT, mix, CHAT.max_num_seqs) / output
    one = Trace(np.zeros(1), np.array([prompt]), np.array([output]))
    cost = Cost(**request_cost(CHAT).model_dump())(one)[0]
    assert a_second * cost == pytest.approx(1.0, rel=1e-9)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
