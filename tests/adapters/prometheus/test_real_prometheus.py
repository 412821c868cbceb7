"""The templates and the source against a real Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress

import pytest

from controlplane.adapters.engines import TEMPLATES
from controlplane.adapters.engines.escape import any_of, matcher
from controlplane.adapters.engines.rules import SERIES_LABEL, inline
from controlplane.adapters.engines.template import Helper, Level, series_name
from controlplane.adapters.prometheus.asks import Mode
from controlplane.adapters.prometheus.client import Answer, PrometheusClient
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.readings import Cause, Known, Missing, PoolSignal, Reading, Signal
from controlplane.ports import MetricsAnswer
from tests.adapters.prometheus.conftest import RENDERING, Cast, Fleet, Watch
from tests.adapters.prometheus.policies import CHAT, policies
from tests.support import eventually

pytestmark = pytest.mark.real

Key = tuple[str, frozenset[tuple[str, str]]]


def known(reading: Reading | None) -> float:
    """The value of a reading that has to be known."""
    assert isinstance(reading, Known), reading
    return reading.value


def test_recorded_and_inline_renderings_say_the_same(cast: Cast) -> None:
    """Every series, at an instant at which the rules ran: same labels, same values.

    Not of the engine that stamps its samples back: they come in under a time at which rules ran already.
    """
    differences: list[str] = ["not compared yet"]

    def alike() -> bool:
        differences[:] = _differences(cast.fleet, without=cast["late"])
        return not differences

    with suppress(AssertionError):
        eventually(alike, 10, every_s=0.3)
    assert not differences


def _differences(fleet: Fleet, without: InstanceId) -> list[str]:
    every = {template.series for template in TEMPLATES}
    ran = fleet.get("query", query=f"timestamp({series_name(Helper.WINDOW, Level.RULES)})")["result"]
    at = float(ran[0]["value"][1])
    recorded = _values(fleet.get("query", query='{__name__=~"trimtab:.*"}', time=at)["result"], "__name__")
    asked = _values(fleet.get("query", query=inline(RENDERING, TEMPLATES), time=at)["result"], SERIES_LABEL)
    absent = sorted(every - {series for series, _ in recorded})
    keys = {key for key in recorded.keys() | asked.keys() if ("instance_id", without) not in key[1]}
    unlike = [key for key in keys if not _close(recorded.get(key), asked.get(key))]
    return absent + [f"{key}: recorded {recorded.get(key)}, asked {asked.get(key)}" for key in unlike]


def _values(result: list[Mapping[str, object]], label: str) -> dict[Key, float]:
    found = {}
    for item in result:
        labels = dict(item["metric"])  # type: ignore[call-overload]
        series = labels.pop(label)
        found[series, frozenset(labels.items())] = float(item["value"][1])  # type: ignore[index]
    return found


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))


def test_every_signal_of_a_healthy_instance_is_known_with_its_own_value(watch: Watch, cast: Cast) -> None:
    """Signal by signal against what the exposer says, with the raw sample's age.

    One late scrape moves a rate of a short window by some per cent until it has left the window.
    """
    found: dict[Signal, float] = {}
    ages: list[float] = []
    expected = {
        Signal.UP: 1, Signal.RUNNING: 4, Signal.RUNNING_MEAN: 4, Signal.WAITING: 1, Signal.KV_CACHE: 0.25,
        Signal.STEP_TIME: 0.03, Signal.TTFT_P95: 0.099, Signal.E2E_P95: 0.99, Signal.COMPLETIONS: 10,
        Signal.ERRORS: 1, Signal.PREEMPTIONS: 0.5, Signal.PROMPT_TOKENS: 200, Signal.GENERATION_TOKENS: 50,
        Signal.CPU: 0.5, Signal.PROGRESS: 250.5, Signal.GPU_UTILISATION: 0.6, Signal.GPU_SPREAD: 0.4,
        Signal.SM_ACTIVE: 0.5, Signal.DRAM_ACTIVE: 0.4, Signal.GPU_MEMORY: 0.75, Signal.SM_CLOCK: 1980,
        Signal.GPU_TEMPERATURE: 61, Signal.GPU_POWER: 1021, Signal.XID: 0,
    }  # fmt: skip

    def as_shown() -> bool:
        readings = watch.read(CycleKind.CAPACITY).instances
        of_busy = {signal: by_id[cast["busy"]] for signal, by_id in readings.items()}
        found.update({signal: known(reading) for signal, reading in of_busy.items()})
        ages[:] = [time.time() - each.sampled_at for each in of_busy.values() if isinstance(each, Known)]
        return found == pytest.approx(expected, rel=0.02)

    with suppress(AssertionError):
        eventually(as_shown, 20, every_s=0.5)
    assert found == pytest.approx(expected, rel=0.02)
    assert all(-0.5 < age_s < 4 for age_s in ages)


def test_pool_signals_come_from_the_engines_and_from_the_door(watch: Watch, cast: Cast) -> None:
    """Demand counts as it arrives, refusals by rule and by timeout together, in-flight without the queue."""
    pool = watch.read(CycleKind.CAPACITY).pools[CHAT]
    found = {signal: known(reading) for signal, reading in pool.items() if signal in _AT_THE_DOOR}
    assert found == pytest.approx(_AT_THE_DOOR, rel=0.2)
    assert known(pool[PoolSignal.OUTPUT_MEAN]) == pytest.approx(30, rel=1e-6)
    assert known(pool[PoolSignal.PROMPT_MEAN]) == pytest.approx(60, rel=1e-6)
    assert 900 <= known(pool[PoolSignal.OUTPUT_SQUARE_MEAN]) < 1100  # all lengths are 30
    assert 0.08 < known(pool[PoolSignal.TTFT_P95]) <= 0.1
    assert 0.025 < known(pool[PoolSignal.TPOT_P95]) <= 0.05
    assert 1.0 < known(pool[PoolSignal.DOOR_TTFT_P95]) <= 2.5
    assert 2.5 < known(pool[PoolSignal.DOOR_E2E_P95]) <= 5.0


_AT_THE_DOOR = {
    PoolSignal.ARRIVALS: 20,
    PoolSignal.REFUSALS: 3,
    PoolSignal.GATEWAY_QUEUE: 3,
    PoolSignal.GATEWAY_IN_FLIGHT: 8,
    PoolSignal.CANCELLED_RATIO: 3 / 18,
}


def test_a_frozen_answer_makes_no_progress_while_a_healthy_idle_engine_does(
    watch: Watch, cast: Cast, troubled: MetricsAnswer
) -> None:
    """Byte-identical 200s: timestamps stay fresh, counters stand still; before the freeze they moved."""
    assert known(troubled.instances[Signal.PROGRESS][cast["frozen"]]) > 0
    eventually(lambda: known(watch.reading(Signal.PROGRESS, cast["frozen"])) == 0, 10)
    readings = watch.read().instances
    assert known(readings[Signal.RUNNING][cast["frozen"]]) == 4
    assert known(readings[Signal.PROGRESS][cast["idle"]]) > 0
    assert known(readings[Signal.RUNNING][cast["idle"]]) == 0


def test_a_failed_scrape_is_unseen_and_not_zero(watch: Watch, cast: Cast, troubled: MetricsAnswer) -> None:
    """The engine answers 500: its series end at once, rates over old samples are not used, UP says 0."""
    assert known(troubled.instances[Signal.STEP_TIME][cast["failing"]]) > 0
    eventually(lambda: watch.cause(Signal.STEP_TIME, cast["failing"]) == Cause.UNSEEN, 10)
    readings = watch.read(CycleKind.CAPACITY).instances
    assert readings[Signal.RUNNING][cast["failing"]] == Missing(Cause.UNSEEN)
    assert known(readings[Signal.UP][cast["failing"]]) == 0


def test_counters_that_restart_with_their_process_are_a_rate(
    watch: Watch, cast: Cast, troubled: MetricsAnswer
) -> None:
    """The process starts anew: the true rate goes on, never negative and never a jump."""
    assert known(troubled.instances[Signal.GENERATION_TOKENS][cast["restarts"]]) == pytest.approx(
        50, rel=0.05
    )
    watched = [watch.reading(Signal.GENERATION_TOKENS, cast["restarts"]) for _ in range(8)]
    assert all(0 <= known(reading) < 120 for reading in watched)


def test_targets_taken_away_vanish_from_the_answer(watch: Watch, cast: Cast, troubled: MetricsAnswer) -> None:
    """Service discovery forgets an instance: its series end, nobody speaks of it, nothing reads 0."""
    assert known(troubled.instances[Signal.RUNNING][cast["leaving"]]) == 4
    eventually(lambda: watch.cause(Signal.RUNNING, cast["leaving"]) in {"absent", Cause.UNSEEN}, 20)
    assert watch.cause(Signal.STEP_TIME, cast["leaving"]) in {"absent", Cause.UNSEEN}
    assert watch.cause(Signal.RUNNING, cast["busy"]) == "known"


def test_the_age_of_the_raw_sample_survives_recording(watch: Watch, cast: Cast) -> None:
    """An exporter that stamps its sample 20 s back: a fresh series, an old reading (B-013)."""
    late = eventually(lambda: watch.read().instances[Signal.RUNNING].get(cast["late"]), 10)
    fresh = watch.read().instances[Signal.RUNNING][cast["busy"]]
    assert isinstance(late, Known)
    assert isinstance(fresh, Known)
    assert 19 < time.time() - late.sampled_at < 25
    assert time.time() - fresh.sampled_at < 4


def test_counters_that_fall_without_a_restart_are_no_rate(watch: Watch, cast: Cast) -> None:
    """B-044: a small decrease reads as a reset and would give a giant rate; what is no rate stays."""
    readings = watch.read(CycleKind.CAPACITY).instances
    for signal in (Signal.GENERATION_TOKENS, Signal.PROMPT_TOKENS, Signal.PROGRESS, Signal.STEP_TIME):
        found = readings[signal][cast["sawtooth"]]
        assert isinstance(found, Missing)
        assert found.cause is Cause.INCONSISTENT
    assert known(readings[Signal.RUNNING][cast["sawtooth"]]) == 4


def test_a_policy_that_asks_for_another_window_than_the_rules_have_is_noted(watch: Watch) -> None:
    """In both renderings: as a recorded series the window is the one without a cluster."""
    assert [note for note in watch.read(CycleKind.CAPACITY).health.notes if "window" in note] == []
    watch.policies = policies(window_s=20.0)
    noted = [note for note in watch.read(CycleKind.CAPACITY).health.notes if "window" in note]
    assert bool(noted) is (watch.source.mode is Mode.RECORDED), "sent as queries, they have the policy's own"


def test_a_window_with_too_few_scrapes_says_so(watch: Watch, cast: Cast) -> None:
    """Every second scrape fails: a rate over two or three samples is none (B-024)."""
    eventually(lambda: watch.cause(Signal.STEP_TIME, cast["flaky"]) == Cause.WINDOW_TOO_SHORT, 10)


def test_impossible_gpu_values_are_dropped_before_the_mean(watch: Watch, cast: Cast) -> None:
    """B-006, B-007: a sentinel is no utilisation, a garbage GPU does not touch its neighbour's mean."""
    answer = watch.read(CycleKind.CAPACITY)
    utilisation = answer.instances[Signal.GPU_UTILISATION]
    assert utilisation[cast["idle"]] == Missing(Cause.OUT_OF_RANGE)
    assert known(utilisation[cast["fast"]]) == pytest.approx(0.35)
    assert answer.health.rejected_samples >= 2


def test_two_targets_that_claim_one_instance_are_not_added_up(watch: Watch, cast: Cast) -> None:
    """The sum would say twice the running requests; the reading says that it is inconsistent."""
    assert watch.cause(Signal.RUNNING, cast["twice"]) == Cause.INCONSISTENT
    assert watch.cause(Signal.RUNNING, cast["busy"]) == "known"


def test_two_instances_that_claim_one_pod_get_no_gpu_and_cost_nobody_else_theirs(
    watch: Watch, cast: Cast
) -> None:
    """A join with two candidates would fail the query for the whole fleet."""
    assert watch.cause(Signal.GPU_UTILISATION, cast["ragged"]) != "known"
    assert watch.cause(Signal.GPU_UTILISATION, cast["squatter"]) != "known"
    assert watch.cause(Signal.GPU_UTILISATION, cast["busy"]) == "known"


def test_a_quantile_inside_the_first_bucket_is_unresolvable(watch: Watch, cast: Cast) -> None:
    """B-046: all answers within 0.3 s show 0.285 s for ever; that is no figure to act upon."""
    assert watch.cause(Signal.E2E_P95, cast["fast"]) == Cause.UNRESOLVABLE
    assert watch.cause(Signal.E2E_P95, cast["busy"]) == "known"


def test_idle_is_told_from_broken(watch: Watch, cast: Cast) -> None:
    """B-002: NaN with a proven idle window is no traffic, and rates of an idle engine are a true 0."""
    readings = watch.read(CycleKind.CAPACITY).instances
    for signal in (Signal.STEP_TIME, Signal.TTFT_P95, Signal.E2E_P95):
        assert readings[signal][cast["idle"]] == Missing(Cause.NO_TRAFFIC)
    assert known(readings[Signal.COMPLETIONS][cast["idle"]]) == 0


def test_falling_buckets_do_not_throw_the_quantile_to_the_top(watch: Watch, cast: Cast) -> None:
    """B-047: one bucket holds one more than the next; the quantile stays where the others put it."""
    text = cast.engines["ragged"].text()
    low, high = (_bucket(text, bound) for bound in ("0.25", "0.5"))
    assert low > high
    assert known(watch.reading(Signal.TTFT_P95, cast["ragged"])) <= 0.1


def _bucket(text: str, bound: str) -> float:
    start = "vllm:time_to_first_token_seconds_bucket"
    row = next(row for row in text.splitlines() if row.startswith(start) and f'le="{bound}"' in row)
    return float(row.rpartition(" ")[2])


def test_whatever_stands_in_a_name_the_query_stays_the_same_query(
    cast: Cast, client: PrometheusClient
) -> None:
    """B-179: a quote in a name neither breaks the query nor reads other tenants' series."""
    nasty = ['chat"} or up{job=~".*', "a\nb", "a\\", "é😀", "\x00\x7f", "$1"]
    answers = client.ask({name: f"up{{{matcher('pool', '=', name)}}}" for name in nasty})
    assert [isinstance(answer, Answer) and answer.vector.samples for answer in answers.values()] == [()] * 6
    exact = client.ask({"q": f"up{{{matcher('pool', '=~', any_of(['chat']))}}}"})["q"]
    assert isinstance(exact, Answer)
    assert exact.vector.samples
