"""From vectors to readings: causes, ages, and what one failing query costs the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from controlplane.adapters.engines.template import Helper, Level, series_name
from controlplane.adapters.prometheus.asks import WEIGHTS_SIGNALS, Mode, asks
from controlplane.adapters.prometheus.client import Answer, Failure, Result
from controlplane.adapters.prometheus.envelope import Sample, Vector
from controlplane.adapters.prometheus.source import PrometheusSource
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.policy import Policies
from controlplane.domain.readings import Cause, Known, Missing, PoolSignal, Reading, Signal
from controlplane.ports import MetricsAnswer
from tests.adapters.prometheus.policies import CHAT, policies

NOW = 1_767_225_600.0
A, B = InstanceId("demo/a@1"), InstanceId("demo/b@1")

Series = dict[str, float]

ENGINE: Series = {
    "target_age_seconds": 1.0,
    "engine_age_seconds": 2.0,
    "up_bool": 1.0,
    "running_requests": 4.0,
    "waiting_requests": 0.0,
    "running_mean_requests": 4.0,
    "step_time_seconds": 0.03,
    "progress_per_second": 250.0,
    "kv_cache_ratio": 0.5,
    "ttft_p95_seconds": 0.4,
    "e2e_p95_seconds": 4.0,
    "completions_per_second": 3.0,
    "ttft_count_requests": 180.0,
    "e2e_count_requests": 180.0,
}
IDLE: Series = ENGINE | {
    "running_requests": 0.0,
    "running_mean_requests": 0.0,
    "step_time_seconds": float("nan"),
    "ttft_p95_seconds": float("nan"),
    "e2e_p95_seconds": float("nan"),
    "completions_per_second": 0.0,
    "ttft_count_requests": 0.0,
    "e2e_count_requests": 0.0,
}
GPU: Series = {"gpu_age_seconds": 3.0, "gpu_utilisation_ratio": 0.7}
POOL: Series = {
    "engine_age_seconds": 2.0,
    "output_mean_tokens": 30.0,
    "ttft_p95_seconds": 0.4,
    "ttft_count_requests": 180.0,
    "e2e_count_requests": 180.0,
}
GATEWAY: Series = {"gateway_age_seconds": 1.5, "arrivals_per_second": 20.0, "gateway_queue_requests": 0.0}


DOOR: Series = {"door_age_seconds": 0.5, "door_ttft_p95_seconds": 1.7, "door_ttft_count_requests": 180.0}


def vector(level: str, labels: Mapping[str, str], series: Series) -> tuple[Sample, ...]:
    return tuple(
        Sample(
            {"__name__": f"trimtab:{level}:{name}", "cluster": "demo", "pool": "chat", **labels}, value, NOW
        )
        for name, value in series.items()
    )


def engines(instances: Mapping[InstanceId, Series], level: str = "instance") -> tuple[Sample, ...]:
    return tuple(
        s for name, series in instances.items() for s in vector(level, {"instance_id": name}, series)
    )


@dataclass
class Scripted:
    """Answers by query name. A Failure stands for itself; samples become an answer."""

    script: dict[str, tuple[Sample, ...] | Failure]
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    server_date: float | None = NOW
    evaluated_at: float = NOW
    asked: list[Mapping[str, str]] = field(default_factory=list)

    def ask(self, queries: Mapping[str, str]) -> Mapping[str, Result]:
        self.asked.append(queries)
        return {name: self._one(name) for name in queries}

    def _one(self, name: str) -> Result:
        found = self.script.get(name, ())
        if isinstance(found, Failure):
            return found
        found = tuple(replace(sample, at=self.evaluated_at) for sample in found)
        return Answer(
            Vector(found, self.warnings.get(name, ()), self.notes.get(name, ())), self.server_date, 0.0
        )


def healthy() -> Scripted:
    buckets = tuple(
        Sample({"__name__": "trimtab:pool:output_bucket_per_second", "pool": "chat", "le": bound}, value, NOW)
        for bound, value in (("20", 0.0), ("50", 3.0), ("+Inf", 3.0))
    )
    return Scripted(
        {
            "engines": engines({A: ENGINE, B: IDLE}),
            "gpus": engines({A: GPU}),
            "pools": vector("pool", {}, POOL) + buckets,
            "gateways": vector("pool", {}, GATEWAY),
        }
    )


def read(
    script: Scripted,
    kind: CycleKind = CycleKind.CAPACITY,
    policy: Policies | None = None,
    now: float = NOW,
) -> MetricsAnswer:
    return PrometheusSource(script, "demo", 5.0).read(kind, policy or policies(), now)


def of(answer: MetricsAnswer, signal: Signal, instance: InstanceId = A) -> Reading | None:
    return answer.instances[signal].get(instance)


def with_engine(**changed: float | None) -> Scripted:
    """The healthy fleet, with A's series changed, or taken away where None."""
    series = {name: value for name, value in (ENGINE | changed).items() if value is not None}
    script = healthy()
    script.script["engines"] = engines({A: series, B: IDLE})
    return script


def test_a_healthy_reading_carries_its_value_and_its_raw_samples_time() -> None:
    answer = read(healthy())
    assert of(answer, Signal.RUNNING) == Known(4.0, NOW - 2.0)
    assert of(answer, Signal.UP) == Known(1.0, NOW - 1.0)
    assert of(answer, Signal.GPU_UTILISATION) == Known(0.7, NOW - 3.0)
    assert answer.pools[CHAT][PoolSignal.ARRIVALS] == Known(20.0, NOW - 1.5)
    assert answer.health.failures == ()
    assert answer.health.warnings == ()


@pytest.mark.parametrize("kind", CycleKind)
@pytest.mark.parametrize("mode", Mode)
def test_the_number_of_queries_is_the_same_for_any_fleet(kind: CycleKind, mode: Mode) -> None:
    """One for weights, four for capacity, for two instances and for a thousand."""
    script = healthy()
    many = {InstanceId(f"demo/{number}@1"): ENGINE for number in range(1000)}
    PrometheusSource(script, "demo", 5.0, mode).read(kind, policies(), NOW)
    script.script["engines"] = engines(many)
    answer = PrometheusSource(script, "demo", 5.0, mode).read(kind, policies("chat", "other"), NOW)
    assert [len(asked) for asked in script.asked] == [len(asks(kind))] * 2
    assert len(asks(kind)) == {CycleKind.WEIGHTS: 1, CycleKind.CAPACITY: 4}[kind]
    assert len(answer.instances[Signal.RUNNING]) == (1001 if kind is CycleKind.CAPACITY else 1000)


def test_a_weights_cycle_asks_for_four_signals() -> None:
    assert set(read(healthy(), CycleKind.WEIGHTS).instances) == set(WEIGHTS_SIGNALS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_missing(value: float) -> None:
    """B-001: never a value, whatever the sign."""
    assert _cause(of(read(with_engine(running_requests=value)), Signal.RUNNING)) is Cause.NOT_FINITE


@pytest.mark.parametrize(
    ("series", "signal", "bad", "good"),
    [
        ("running_requests", Signal.RUNNING, -1.0, 0.0),
        ("kv_cache_ratio", Signal.KV_CACHE, 1.001, 1.0),
        ("kv_cache_ratio", Signal.KV_CACHE, -0.1, 0.0),
        ("up_bool", Signal.UP, 2.0, 1.0),
        ("completions_per_second", Signal.COMPLETIONS, 1e9, 1e3),
        ("running_requests", Signal.RUNNING, 9.223372036854775794e18, 1e5),
    ],
)
def test_a_value_outside_its_range_is_dropped_and_counted(
    series: str, signal: Signal, bad: float, good: float
) -> None:
    """Negative counts, ratios above one, rates beyond physics (B-044): not clamped, not used."""
    answer = read(with_engine(**{series: bad}))
    assert _cause(of(answer, signal)) is Cause.OUT_OF_RANGE
    assert answer.health.rejected_samples == 1
    after = read(with_engine(**{series: good}))
    assert of(after, signal) == Known(good, NOW - (1.0 if signal is Signal.UP else 2.0))
    assert after.health.rejected_samples == 0


def _cause(reading: Reading | None) -> Cause | None:
    return reading.cause if isinstance(reading, Missing) else None


QUANTILE = (Signal.TTFT_P95, "ttft_p95_seconds", "ttft_count_requests")
NAN = float("nan")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({}, None),
        ({"ttft_count_requests": 20.0}, None),
        ({"ttft_count_requests": 19.9}, Cause.TOO_FEW),
        ({"ttft_p95_seconds": 0.0009}, Cause.UNRESOLVABLE),
        ({"ttft_p95_seconds": 0.001}, Cause.UNRESOLVABLE),
        ({"ttft_p95_seconds": 0.0011}, None),
        ({"ttft_p95_seconds": 2560.0}, Cause.UNRESOLVABLE),
        ({"ttft_p95_seconds": 2559.0}, None),
        ({"ttft_p95_seconds": NAN, "ttft_count_requests": 0.0}, Cause.TOO_FEW),
        (
            {"ttft_p95_seconds": NAN, "ttft_count_requests": 0.0, "running_mean_requests": 0.0},
            Cause.NO_TRAFFIC,
        ),
        ({"ttft_p95_seconds": NAN, "ttft_count_requests": 0.0, "running_mean_requests": NAN}, Cause.TOO_FEW),
        ({"ttft_p95_seconds": NAN, "ttft_count_requests": None}, Cause.NOT_FINITE),
        ({"ttft_p95_seconds": NAN}, Cause.NOT_FINITE),
    ],
)
def test_a_quantile_is_known_only_where_it_can_be(
    changed: dict[str, float | None], cause: Cause | None
) -> None:
    """B-002, B-046: idle is proven by a window of nothing running; otherwise NaN stays unknown."""
    assert _cause(of(read(with_engine(**changed)), Signal.TTFT_P95)) is cause


@pytest.mark.parametrize(
    ("changed", "gauge", "rate"),
    [
        ({}, None, None),
        ({"engine_age_seconds": None}, Cause.UNSEEN, Cause.UNSEEN),
        ({"short_history_count": 3.0}, None, Cause.WINDOW_TOO_SHORT),
        ({"false_resets_count": 1.0}, None, Cause.INCONSISTENT),
        ({"duplicate_targets_count": 2.0}, Cause.INCONSISTENT, Cause.INCONSISTENT),
        ({"running_requests": None, "step_time_seconds": None}, Cause.NOT_EXPORTED, Cause.NOT_EXPORTED),
    ],
)
def test_evidence_beside_a_value_decides_what_it_is_worth(
    changed: dict[str, float | None], gauge: Cause | None, rate: Cause | None
) -> None:
    answer = read(with_engine(**changed), CycleKind.WEIGHTS)
    assert _cause(of(answer, Signal.RUNNING)) is gauge
    assert _cause(of(answer, Signal.STEP_TIME)) is rate
    assert _cause(of(answer, Signal.RUNNING, B)) is None


def test_a_window_that_the_policy_cannot_fill_says_so() -> None:
    """Windows hold four scrapes; at 5 s scrapes that is 20 s."""
    short = read(healthy(), policy=policies(window_s=19.9))
    assert _cause(of(short, Signal.STEP_TIME)) is Cause.WINDOW_TOO_SHORT
    assert _cause(of(short, Signal.RUNNING)) is None
    assert _cause(of(read(healthy(), policy=policies(window_s=20.0)), Signal.STEP_TIME)) is None


def test_two_series_that_claim_one_reading_are_inconsistent() -> None:
    script = healthy()
    twin = Sample(
        {"__name__": "trimtab:instance:running_requests", "pool": "other", "instance_id": A}, 9.0, NOW
    )
    script.script["engines"] = (*engines({A: ENGINE, B: IDLE}), twin)
    answer = read(script)
    assert _cause(of(answer, Signal.RUNNING)) is Cause.INCONSISTENT
    assert of(answer, Signal.WAITING) == Known(0.0, NOW - 2.0)


@pytest.mark.parametrize("cause", [Cause.QUERY_FAILED, Cause.QUERY_TIMEOUT])
@pytest.mark.parametrize("lost", ["engines", "gpus", "pools", "gateways"])
def test_a_failing_query_loses_its_own_signals_only(lost: str, cause: Cause) -> None:
    """B-053: the others are as they were; which one failed and why stands in the account."""
    script = healthy()
    whole = read(script)
    script.script[lost] = Failure(cause, "boom")
    answer = read(script)
    own = {signal for ask in asks(CycleKind.CAPACITY) if ask.name == lost for signal in _signals(ask)}
    for signal, readings in answer.instances.items():
        known_instances = {A, B} if lost != "engines" else {A}
        expected = {
            i: Missing(cause) if signal in own else whole.instances[signal][i] for i in known_instances
        }
        assert dict(readings) == expected
        assert (answer.absent[signal] is cause) == (signal in own)
    assert answer.health.failures == ((lost, "boom"),)


def _signals(ask: object) -> set[object]:
    return {t.name for t in ask.templates if isinstance(t.name, Signal)}  # type: ignore[attr-defined]


def test_nothing_at_all_is_no_data_and_not_zero() -> None:
    """B-011: success with no series for anybody, every pool signal missing, and it is reported."""
    answer = read(Scripted({}))
    assert set(answer.absent.values()) == {Cause.EMPTY}
    assert all(not readings for readings in answer.instances.values())
    assert set(answer.pools[CHAT].values()) == {Missing(Cause.EMPTY)}
    assert [name for name, _ in answer.health.failures] == ["engines", "gpus", "pools", "gateways"]


def test_a_fleet_without_gpu_metrics_is_not_a_failure() -> None:
    script = healthy()
    script.script["gpus"] = ()
    answer = read(script)
    assert _cause(of(answer, Signal.GPU_UTILISATION)) is Cause.EMPTY
    assert answer.health.failures == ()
    assert answer.health.notes == ("query gpus: no series at all",)


def test_a_partial_answer_keeps_what_came_and_trusts_no_sum() -> None:
    """What is present is true; what is absent may exist; a pool's sum is too small by an unknown amount."""
    script = healthy()
    script.warnings = {"engines": ("store unavailable",), "pools": ("store unavailable",)}
    answer = read(script)
    assert of(answer, Signal.RUNNING) == Known(4.0, NOW - 2.0)
    assert answer.absent[Signal.RUNNING] is Cause.PARTIAL
    assert _cause(answer.pools[CHAT][PoolSignal.OUTPUT_MEAN]) is Cause.PARTIAL
    assert isinstance(answer.pools[CHAT][PoolSignal.ARRIVALS], Known)
    assert answer.health.warnings == ("store unavailable",)


def test_a_harmless_remark_degrades_nothing_and_is_said_once() -> None:
    """B-051."""
    script = healthy()
    script.notes = dict.fromkeys(("engines", "pools"), ("PromQL info: no _total",))
    answer = read(script)
    assert answer.health.notes == ("PromQL info: no _total",)
    assert answer.health.warnings == ()
    assert answer.instances == read(healthy()).instances


@pytest.mark.parametrize(("skew", "noted"), [(0.0, False), (30.0, False), (31.0, True), (-280.0, True)])
def test_a_clock_that_is_off_is_measured_and_changes_no_age(skew: float, noted: bool) -> None:
    """B-054: ages are by the server's clock, so ours may be wrong without a reading going stale."""
    script = healthy()
    script.server_date = script.evaluated_at = NOW + skew - 0.5
    answer = read(script)
    assert answer.health.skew_s == pytest.approx(skew)
    assert any("clock" in note for note in answer.health.notes) is noted
    assert of(answer, Signal.RUNNING) == Known(4.0, NOW - 2.0)


def test_an_answer_out_of_a_cache_is_as_old_as_it_is() -> None:
    """Some proxy answers with what was computed a minute ago: the `Date` beside it tells."""
    script = healthy()
    script.evaluated_at = NOW - 60
    assert of(read(script), Signal.RUNNING) == Known(4.0, NOW - 62.0)


def test_a_series_of_nobody_we_know_is_left_out() -> None:
    script = healthy()
    script.script["engines"] = (*engines({A: ENGINE}), *vector("instance", {}, ENGINE))
    assert set(read(script).instances[Signal.RUNNING]) == {A}


def test_an_instance_may_be_known_by_other_labels() -> None:
    """The hook for a Prometheus whose targets do not carry our id."""
    by_pod: Callable[[Mapping[str, str]], InstanceId | None] = lambda labels: InstanceId("x/" + labels["pod"])  # noqa: E731
    script = Scripted({"engines": vector("instance", {"pod": "p1"}, ENGINE)})
    source = PrometheusSource(script, "demo", 5.0, identify=by_pod)
    answer = source.read(CycleKind.WEIGHTS, policies(), NOW)
    assert set(answer.instances[Signal.RUNNING]) == {InstanceId("x/p1")}


def test_rules_for_another_window_are_remarked() -> None:
    script = healthy()
    window = Sample({"__name__": "trimtab:rules:rules_window_seconds"}, 300.0, NOW)
    script.script["pools"] = (*vector("pool", {}, POOL), window)
    assert any("window of 60s" in note and "300s" in note for note in read(script).health.notes)
    assert not read(script, policy=policies(window_s=300.0)).health.notes


def test_rules_alone_are_no_data() -> None:
    """The rule that tells the window has a sample even where no engine has one."""
    window = Sample({"__name__": "trimtab:rules:rules_window_seconds"}, 300.0, NOW)
    answer = read(Scripted({"pools": (window,)}))
    assert set(answer.absent.values()) == {Cause.EMPTY}
    assert len(answer.health.failures) == 4


def test_lengths_square_needs_buckets_and_a_mean() -> None:
    script = healthy()
    assert isinstance(read(script).pools[CHAT][PoolSignal.OUTPUT_SQUARE_MEAN], Known)
    script.script["pools"] = vector("pool", {}, POOL)
    assert _cause(read(script).pools[CHAT][PoolSignal.OUTPUT_SQUARE_MEAN]) is Cause.NOT_EXPORTED
    script.script["pools"] = vector("pool", {}, POOL | {"output_mean_tokens": NAN})
    assert _cause(read(script).pools[CHAT][PoolSignal.OUTPUT_SQUARE_MEAN]) is Cause.NOT_FINITE


def test_an_idle_pool_has_no_traffic_only_if_every_instance_is_proven_idle() -> None:
    """B-002: one busy or unknown instance, and the pool's NaN stays unknown."""
    nothing = POOL | {"ttft_p95_seconds": NAN, "ttft_count_requests": 0.0}
    script = healthy()
    script.script["pools"] = vector("pool", {}, nothing)
    script.script["engines"] = engines({A: IDLE, B: IDLE})
    assert _cause(read(script).pools[CHAT][PoolSignal.TTFT_P95]) is Cause.NO_TRAFFIC
    script.script["engines"] = engines({A: ENGINE, B: IDLE})
    assert _cause(read(script).pools[CHAT][PoolSignal.TTFT_P95]) is Cause.TOO_FEW
    script.script["engines"] = Failure(Cause.QUERY_FAILED, "boom")
    assert _cause(read(script).pools[CHAT][PoolSignal.TTFT_P95]) is Cause.TOO_FEW


def test_pools_without_a_policy_are_left_out() -> None:
    """HAProxy's other backends are no pools of ours."""
    script = healthy()
    script.script["gateways"] = (*vector("pool", {}, GATEWAY), *vector("pool", {"pool": "stats"}, GATEWAY))
    assert set(read(script).pools) == {PoolName("chat")}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e308, -1.0])
@pytest.mark.parametrize("series", sorted({*ENGINE, *GPU, "gpu_rejected_samples"}))
def test_a_figure_that_is_no_number_costs_its_own_reading_and_no_cycle(series: str, value: float) -> None:
    """B-001, B-019: neither a count nor an age of one instance may break what is known of the others."""
    script = healthy()
    bad = ENGINE | GPU | {series: value}
    script.script["engines"] = engines({A: {each: bad[each] for each in ENGINE}, B: IDLE})
    script.script["gpus"] = engines({A: {each: bad[each] for each in bad if each not in ENGINE}})
    answer = read(script)
    known = [each for rows in answer.instances.values() for each in rows.values() if isinstance(each, Known)]
    assert all(math.isfinite(each.value) and math.isfinite(each.sampled_at) for each in known)
    assert isinstance(answer.instances[Signal.RUNNING][B], Known)


@pytest.mark.parametrize("window", [float("nan"), float("inf"), 1e308])
def test_a_window_that_is_no_number_breaks_nothing(window: float) -> None:
    script = healthy()
    rules = Sample({"__name__": series_name(Helper.WINDOW, Level.RULES), "cluster": "demo"}, window, NOW)
    script.script["pools"] = (*vector("pool", {}, POOL), rules)
    assert isinstance(read(script).pools[CHAT][PoolSignal.TTFT_P95], Known)


def door(said: Series, exporters: float | None = 1.0) -> Reading:
    """First token at the door, where `exporters` are scraped and say this."""
    script = healthy()
    told = Sample({"__name__": "trimtab:rules:doors_count", "cluster": "demo"}, exporters or 0.0, NOW)
    script.script["gateways"] = (
        *vector("pool", {}, GATEWAY | said),
        *(() if exporters is None else (told,)),
    )
    return read(script).pools[CHAT][PoolSignal.DOOR_TTFT_P95]


def test_a_fleet_without_a_gateway_exporter_lacks_nothing_and_a_silent_one_is_unseen() -> None:
    """The same absence of series: what tells them apart is whether anybody is asked for them."""
    assert door(DOOR) == Known(1.7, NOW - 0.5)
    assert door({}, exporters=None) == Missing(Cause.NOT_EXPORTED)
    assert door({}) == Missing(Cause.UNSEEN)


def test_a_quantile_at_the_door_needs_its_samples_too() -> None:
    few = door(DOOR | {"door_ttft_count_requests": 1.0})
    assert isinstance(few, Missing)
    assert few.cause is Cause.TOO_FEW
