"""Every value of the domain can be stored and read back as exactly itself."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.decide import decide
from controlplane.domain.explanation import Explanation
from controlplane.domain.fleet import Inventory
from controlplane.domain.forecast import Forecast, PoolForecast
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.observation import Hold, Observation
from controlplane.domain.plan import Decision, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.profile import Profile
from controlplane.domain.readings import CAUSES, Cause, Column, Known, Missing, Reading, Signal
from controlplane.domain.state import PoolState, SeenCounters, Served, State
from controlplane.forms import FORMS, content_hash, from_json, to_json
from tests.builders import (
    MIX,
    NO_FORECAST,
    NOW,
    gateway,
    instances,
    inventory,
    policies,
    profile,
    server,
    steady_pool,
)
from tests.domain.strategies import observations

readings: st.SearchStrategy[Reading] = st.one_of(
    st.builds(Known, st.floats(allow_nan=False, allow_infinity=False), st.floats(0.0, 2e9)),
    st.builds(Missing, st.sampled_from([cause for cause in Cause if cause is not Cause.NONE])),
)


def full_state() -> State:
    one = InstanceId("demo/chat-8b-01@s9k2x1")
    pool = PoolState(
        last_grow_at=NOW,
        weights={one: 0.5},
        speeds={one: 0.5},
        suspects={one: SeenCounters(NOW, 3)},
        mix=MIX,
        served={one: Served(NOW, 10, 1.0, 2.0, 3.0)},
        limit=40,
    )
    return State({PoolName("chat-8b"): pool})


def test_every_form_survives_a_round_trip() -> None:
    observation = steady_pool(
        gateways={"edge": gateway([server(each) for each in instances(4)]), "far": Missing(Cause.UNSEEN)},
        holds=[Hold(None, "ada", "rollout", NOW)],
    )
    plan, state = decide(observation, policies(), full_state(), NO_FORECAST)
    decision = plan.decisions[PoolName("chat-8b")]
    values: dict[type, object] = {
        Observation: observation,
        State: state,
        Policies: policies(),
        Profile: profile(),
        Forecast: Forecast(NOW, {PoolName("chat-8b"): PoolForecast(90.0, 0.9, 4.5)}),
        Plan: plan,
        Decision: decision,
        Explanation: decision.explanation,
        Inventory: inventory(instances(4)),
        GatewayView: gateway([server(each) for each in instances(2)]),
    }
    assert set(values) == set(FORMS), "a form without an example here is a form without a test"
    for cls, value in values.items():
        text = to_json(value)
        restored: object = from_json(cls, text)
        assert (restored, to_json(restored)) == (value, text)


@given(observations())
def test_any_observation_and_its_plan_survive_a_round_trip(observation: Observation) -> None:
    plan, state = decide(observation, policies(), State(), NO_FORECAST)
    assert from_json(Observation, to_json(observation)) == observation
    assert from_json(Plan, to_json(plan)) == plan
    assert from_json(State, to_json(state)) == state


@given(st.lists(readings, max_size=6))
def test_a_column_comes_back_with_its_gaps_where_they_were(rows: list[Reading]) -> None:
    column = Column.of(rows)
    built = replace(steady_pool(), signals={Signal.RUNNING: column})
    assert from_json(Observation, to_json(built)).signals[Signal.RUNNING] == column


def test_missing_figures_are_null_and_no_text_holds_nan_or_infinity() -> None:
    """B-004: exports contain no NaN or Infinity tokens."""
    built = steady_pool(2, changes={Signal.RUNNING: [Missing(Cause.STALE), 4.0]})
    text = to_json(built)
    assert json.loads(text)["signals"]["running"] == {
        "value": [None, 4.0],
        "cause": [CAUSES.index(Cause.STALE), 0],
        "sampled_at": [None, NOW - 2.0],
    }
    assert "NaN" not in text
    assert "Infinity" not in text


def test_a_nan_that_claims_to_be_known_is_refused_and_not_stored() -> None:
    column = Column(
        value=np.array([np.nan]), ok=np.array([True]), cause=np.zeros(1, np.uint8), sampled_at=np.array([NOW])
    )
    with pytest.raises(ValueError, match="no JSON form"):
        to_json(replace(steady_pool(1), signals={Signal.RUNNING: column}))


def test_equal_values_have_equal_text_however_they_were_built() -> None:
    """Order of keys, whole floats, and the sign of zero make no difference."""
    one = State({PoolName("a"): PoolState(last_grow_at=1.0), PoolName("b"): PoolState(last_grow_at=0.0)})
    other = State({PoolName("b"): PoolState(last_grow_at=-0.0), PoolName("a"): PoolState(last_grow_at=1)})
    assert one == other
    assert content_hash(one) == content_hash(other)


def test_one_changed_figure_changes_the_hash() -> None:
    assert content_hash(policies()) == content_hash(policies())
    assert content_hash(policies()) != content_hash(policies(profiles=[profile(d0_ms=6.5)]))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"form":"observation/3"', '"form":"observation/4"', r"\$\.form: expected 'observation/3'"),
        ('"queries":4', '"queries":"4"', r"expected a whole number, got '4' @ \$\.source\.queries"),
        ('"queries":4', '"queries":true', r"expected a whole number, got True @ \$\.source\.queries"),
        ('"tp":1', '"tp":1,"cards":1', r"cards @ \$\.instances\[0\]"),
        (
            '"phase":"serving"',
            '"phase":"sirving"',
            r"'sirving' is not a valid Phase @ \$\.instances\[0\]",
        ),
        ('"is":"known"', '"is":"guessed"', r"known or missing.* @ \$\."),
        ('"cluster":"demo",', "", "missing field 'cluster'"),
        ('"now":1800000000.0', '"now":NaN', "NaN is no JSON number"),
        ('"now":1800000000.0', '"now":1e999', r"expected a finite number, got inf @ \$\.now"),
        ('"cause":[0,0]', '"cause":[0,99]', r"row 1: cause must be 0\.\."),
        ('"cause":[0,0]', '"cause":[0]', "lists of one length"),
    ],
)
def test_a_wrong_version_or_field_is_refused_by_its_path(old: str, new: str, where: str) -> None:
    text = to_json(steady_pool(2))
    assert from_json(Observation, text)
    assert old in text
    with pytest.raises(ValueError, match=where):
        from_json(Observation, text.replace(old, new))


def test_an_observation_of_the_version_before_is_read_with_what_is_new_left_at_its_default() -> None:
    """A record goes on through an upgrade, and an old cycle is still replayed."""
    new = steady_pool(2)
    body = json.loads(to_json(new))
    for gone in ("loans", "reach"):
        del body[gone]
    for row in (*body["instances"], *body["inventory"]["instances"]):
        del row["gpus"], row["managed"]
    assert from_json(Observation, json.dumps({**body, "form": "observation/1"})) == new


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting|nested"):
        from_json(Plan, text)


def test_a_value_without_a_form_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="CycleKind has no JSON form"):
        to_json(CycleKind.WEIGHTS)
