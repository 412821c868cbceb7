"""Policy files: what is accepted, and every mistake with file, line, key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.policyfiles.leaves import seconds
from controlplane.adapters.policyfiles.policyfile import PolicyFile
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.domain.policy import CapacityPolicy, Mode, PoolKind, Slo
from controlplane.ports import InvalidConfig
from tests.adapters.policyfiles.files import POLICY, PROFILE, changed, house, write


def problems(
    tmp_path: Path, scrape_s: float | None = None, **policies: dict[str, object] | str
) -> tuple[str, ...]:
    directory, profiles = house(tmp_path, **policies)
    with pytest.raises(InvalidConfig) as caught:
        PolicyDirectory(directory, profiles, scrape_s).load()
    return caught.value.problems


def refusal(tmp_path: Path, **changes: object) -> str:
    """The one problem of the good policy with `a__b` keys changed, without its file's folder."""
    found = problems(
        tmp_path, chat=changed(POLICY, {key.replace("__", "."): v for key, v in changes.items()})
    )
    assert len(found) == 1, found
    return found[0].removeprefix(f"{tmp_path / 'policies'}/")


def warned(tmp_path: Path, **changes: object) -> tuple[str, ...]:
    policy = changed(POLICY, {key.replace("__", "."): v for key, v in changes.items()})
    directory, profiles = house(tmp_path, chat=policy)
    return PolicyDirectory(directory, profiles).check()[1]


def test_a_policy_becomes_the_domain_value_in_seconds(tmp_path: Path) -> None:
    policy = changed(POLICY, {"slo.e2e_p95": "2m", "mode": {"capacity": "recommend"}, "kind": "offline"})
    directory, profiles = house(tmp_path, chat=policy)
    pool = next(iter(PolicyDirectory(directory, profiles).load().pools.values()))
    assert pool.slo == Slo(ttft_p95_s=0.8, tpot_p95_s=0.04, e2e_p95_s=120.0)
    assert pool.capacity == CapacityPolicy(minimum=2, maximum=9)
    assert (pool.kind, pool.weights_mode, pool.capacity_mode) == (PoolKind.OFFLINE, Mode.AUTO, Mode.RECOMMEND)


def test_policies_carry_the_profiles_they_name_and_no_others(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    write(profiles, "other.yaml", changed(PROFILE, {"name": "other"}))
    assert list(PolicyDirectory(directory, profiles).load().profiles) == ["small-8b-tp1"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("capacity__target_utilisation", 50, "50, allowed: a ratio 0.1..1"),
        ("capacity__target_utilisation", "50%", "50%, allowed: a ratio"),
        ("evidence__coverage", 1.01, "1.01, allowed: a ratio 0.5..1"),
        ("evidence__window", 90, "90 (no unit), allowed: 2s to 1h, with the unit"),
        ("evidence__window", "60000", "60000, allowed: 2s to 1h"),
        ("evidence__window", "5 m", "5 m, allowed"),
        ("evidence__window", "-5m", "-5m, allowed"),
        ("evidence__window", "2h", "2h, allowed: 2s to 1h"),
        ("slo__ttft_p95", 2000, "2000 (no unit), allowed: 10ms to 10m"),
        ("slo__ttft_p95", "5ms", "5ms, allowed: 10ms to 10m"),
        ("capacity__min", "2", "2, allowed: a whole number"),
        ("capacity__min", 2.5, "2.5, allowed: a whole number"),
        ("capacity__min", True, "true, allowed: a whole number"),
        ("capacity__max", 0, "0, allowed: a whole number 1..10000"),
        ("capacity__min", None, "nothing, allowed: a whole number"),
        ("pool", "Chat_8B", "Chat_8B, allowed: a DNS label"),
        ("pool", "-chat", "-chat, allowed: a DNS label"),
        ("pool", 'chat"} or up{job=~".*', "allowed: a DNS label"),
        ("pool", "c" * 64, "allowed: a DNS label"),
        ("model", "a b", "a b, allowed: a model's name"),
        ("kind", "onlin", "onlin (did you mean online?), allowed: online, offline"),
        ("mode__weights", "on", "on, allowed: observe, recommend, auto"),
        ("weights__ceiling", 2.1, "2.1, allowed: a number 1..2"),
        ("capacity", 3, "allowed: keys with values"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    """B-009 (percent for a ratio), B-176 (bare numbers and other people's units), B-179 (names)."""
    found = refusal(tmp_path, **{key: value})
    assert found.startswith("chat.yaml:")
    assert f"{key.replace('__', '.')}: " in found
    assert said in found


@pytest.mark.parametrize(
    ("written", "in_seconds"),
    [("8s", 8.0), ("90ms", 0.09), ("5m", 300.0), ("1.5h", 5400.0), ("7d", 604800.0)],
)
def test_minutes_and_milliseconds_are_told_apart(written: str, in_seconds: float) -> None:
    """B-176: 5m and 5ms look alike and differ by a factor of sixty thousand."""
    assert seconds(written) == in_seconds


@given(st.integers(1, 999_999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_every_unit_scales_exactly(number: int, unit: str) -> None:
    factor = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    assert seconds(f"{number}{unit}") == number * factor / 1000


@pytest.mark.parametrize(
    "key", ["command", "url", "file", "secret", "receiver", "webhook", "token", "metric", "query", "expr"]
)
@pytest.mark.parametrize("section", ["", "slo.", "capacity.", "weights.", "evidence.", "mode."])
def test_a_policy_can_name_nothing_to_run_reach_or_read(tmp_path: Path, section: str, key: str) -> None:
    """Nor a raw metric (B-042: a counter taken for a load), so no such mistake can be written."""
    found = problems(tmp_path, chat=changed(POLICY, {f"{section}{key}": "hunter2"}))
    assert len(found) == 1
    assert f"{section}{key}: unknown key" in found[0]
    assert "hunter2" not in found[0]


def test_no_key_of_the_model_speaks_of_the_outside() -> None:
    def keys(schema: dict[str, object]) -> set[str]:
        found = set()
        for name, inner in schema.items():
            found |= set(inner) if name == "properties" and isinstance(inner, dict) else set()
            found |= keys(inner) if isinstance(inner, dict) else set()
        return found

    outside = {
        "command",
        "args",
        "url",
        "endpoint",
        "host",
        "file",
        "path",
        "secret",
        "token",
        "receiver",
        "image",
    }
    assert not keys(PolicyFile.model_json_schema()) & outside


def test_an_unknown_key_names_the_known_ones_and_a_near_one(tmp_path: Path) -> None:
    found = refusal(tmp_path, capacity__maximum=9)
    assert "unknown key (did you mean max?), allowed: " in found
    assert "target_utilisation" in found


def test_a_missing_key_is_named_at_its_section(tmp_path: Path) -> None:
    head = "pool: chat\nmodel: small-8b\nprofile: small-8b-tp1\ntp: 1\n"
    text = head + "slo:\n  ttft_p95: 1s\ncapacity: {min: 1, max: 2}\n"
    assert problems(tmp_path, chat=text)[0].endswith("chat.yaml:5: slo.tpot_p95: is required and missing")


def test_the_line_is_that_of_the_value(tmp_path: Path) -> None:
    head = "# a remark\npool: chat\nmodel: small-8b\nprofile: small-8b-tp1\ntp: 1\n"
    text = head + "slo: {ttft_p95: 1s, tpot_p95: 40ms}\ncapacity:\n  min: 1\n  # another\n  max: lots\n"
    assert "chat.yaml:10: capacity.max: lots, allowed" in problems(tmp_path, chat=text)[0]


def test_all_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    """B-178: one wrong file refuses the directory, and every wrong value in it is named."""
    first = changed(POLICY, {"capacity.max": "one", "slo.ttft_p95": 2000, "colour": "red"})
    second = changed(POLICY, {"pool": "other", "capacity.min": 30})
    found = problems(tmp_path, a=first, b=second, c="x: [", good=changed(POLICY, {"pool": "good"}))
    assert [sum(f"/{name}.yaml:" in each for each in found) for name in ("a", "b", "c", "good")] == [
        3,
        1,
        1,
        0,
    ]


def test_a_minimum_above_the_maximum_names_pool_and_both(tmp_path: Path) -> None:
    """B-171."""
    found = refusal(tmp_path, capacity__min=7, capacity__max=5)
    assert all(part in found for part in ("capacity.min: 7", "(5)", "pool chat"))


def test_a_minimum_at_the_maximum_is_fine(tmp_path: Path) -> None:
    assert warned(tmp_path, capacity__min=5, capacity__max=5) == ()


def test_zero_needs_demand_that_is_seen_without_instances(tmp_path: Path) -> None:
    """B-026: behind another's router nothing could wake an empty pool; behind our gateway its queue does."""
    assert "wake" in refusal(tmp_path, capacity__min=0, routing="external")
    assert warned(tmp_path, capacity__min=0, routing="gateway") == ()
    assert warned(tmp_path, capacity__min=1, routing="external") == ()


def test_hysteresis_without_a_gap_is_refused_and_says_which_was_a_default(tmp_path: Path) -> None:
    """B-173: checked after merging with the defaults, and the message says which value is one."""
    found = refusal(tmp_path, capacity__shrink_below=0.85)
    assert "shrink_below 0.85 and grow_above 0.85 (the default)" in found
    assert "capacity.shrink_below" in found
    found = refusal(tmp_path, capacity__grow_above=0.6)
    assert "shrink_below 0.7 (the default) and grow_above 0.6" in found
    assert "capacity.grow_above" in found


def test_a_window_holds_four_scrapes(tmp_path: Path) -> None:
    policy = changed(POLICY, {"evidence": {"window": "59s", "max_age": "30s"}})
    assert "at least 4 scrape intervals (60s)" in problems(tmp_path, 15.0, chat=policy)[0]
    directory, profiles = house(tmp_path, chat=changed(policy, {"evidence.window": "60s"}))
    assert PolicyDirectory(directory, profiles, 15.0).load()
    assert PolicyDirectory(directory, profiles).load()


def test_an_age_that_a_healthy_sample_would_exceed_is_refused(tmp_path: Path) -> None:
    policy = changed(POLICY, {"evidence": {"max_age": "29s"}})
    assert (
        "evidence.max_age: 29s, allowed: at least 2 scrape intervals (30s)"
        in problems(tmp_path, 15.0, chat=policy)[0]
    )


def test_a_profile_must_exist_and_fit(tmp_path: Path) -> None:
    assert "small-8b-tp2, which does not exist, allowed: small-8b-tp1" in refusal(
        tmp_path, profile="small-8b-tp2"
    )
    assert "tp: 2, allowed: 1, as in profile small-8b-tp1" in refusal(tmp_path, tp=2)


def test_two_pools_of_one_name_name_both_places(tmp_path: Path) -> None:
    found = problems(tmp_path, a=POLICY, b=POLICY)
    assert len(found) == 1
    assert "b.yaml:1: pool: chat, which is defined at " in found[0]
    assert found[0].endswith("a.yaml:1 already")


def test_a_target_inside_the_first_bucket_warns(tmp_path: Path) -> None:
    """B-046: a quantile below the first edge cannot be told from the edge, so a breach cannot either."""
    assert (
        "slo.tpot_p95: 0.01s is not above the engine's first histogram edge"
        in warned(tmp_path, slo__tpot_p95="10ms")[0]
    )
    assert warned(tmp_path, slo__tpot_p95="11ms") == ()


def test_a_target_that_one_request_alone_misses_warns(tmp_path: Path) -> None:
    assert "one request alone takes" in warned(tmp_path, slo__tpot_p95="6ms")[-1]


def test_a_limit_above_what_the_engine_runs_warns(tmp_path: Path) -> None:
    assert "the engine runs at most 256" in warned(tmp_path, limit=257)[0]
    assert warned(tmp_path, limit=256) == ()


def test_damping_shorter_than_a_cold_start_warns(tmp_path: Path) -> None:
    """B-069's kind: what is being loaded must not be given away before it served."""
    assert "cold start" in warned(tmp_path, capacity__stabilise="89s")[0]
    assert warned(tmp_path, capacity__stabilise="90s") == ()


@pytest.mark.parametrize(
    "changes", [{"pool": "a\nok: 4 pools"}, {"model": "\x1b[31mred"}, {"\x1b[31mred\n": 1}]
)
def test_a_mistake_is_one_line_without_colours_of_its_own(tmp_path: Path, changes: dict[str, object]) -> None:
    """A stranger's pull request must write nothing into our log but what we say of it."""
    assert refusal(tmp_path, **changes).isprintable()
