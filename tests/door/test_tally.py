"""Lines as series: edges at the targets, failures in the count, and a bound on how many there can be."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry

from controlplane.door.tally import Tally
from tests.door.test_line import raw


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """The sum over all samples of a name that carry these labels."""
    return sum(
        each.value
        for metric in registry.collect()
        for each in metric.samples
        if each.name == name and labels.items() <= each.labels.items()
    )


def test_the_share_within_the_target_is_exact_because_the_target_is_an_edge() -> None:
    tally = Tally(targets_s=[0.8])
    for milliseconds in (799, 800, 801, 900):
        tally.take(raw(ttft_ms=str(milliseconds)))
    within = sample(tally.registry, "trimtab_door_ttft_seconds_bucket", le="0.8", pool="chat-8b")
    assert within == 2
    assert sample(tally.registry, "trimtab_door_ttft_seconds_count") == 4


def test_a_cut_stream_is_a_200_and_a_failure_and_flatters_no_latency() -> None:
    tally = Tally()
    tally.take(raw())
    before = sample(tally.registry, "trimtab_door_total_seconds_count")
    tally.take(raw(termination="SD--", total_ms=20))
    assert sample(tally.registry, "trimtab_door_requests_total", status="200") == 2
    assert sample(tally.registry, "trimtab_door_requests_total", outcome="cut") == 1
    assert sample(tally.registry, "trimtab_door_total_seconds_count") == before == 1


def test_who_waited_in_vain_counts_as_having_waited_at_least_so_long() -> None:
    """B-049: else the latency is that of the patient alone. Who leaves at once says nothing of us."""
    tally = Tally(targets_s=[2.0])
    gone = {"termination": "CH--", "status": 400, "ttft_ms": ""}
    tally.take(raw(**gone, total_ms=1900))
    assert sample(tally.registry, "trimtab_door_ttft_seconds_count") == 0
    tally.take(raw(**gone, total_ms=30_000))
    assert sample(tally.registry, "trimtab_door_ttft_seconds_sum") == 30.0
    assert sample(tally.registry, "trimtab_door_total_seconds_sum") == 30.0
    tally.take(raw(termination="CD--", ttft_ms="500", total_ms=10_000))
    assert sample(tally.registry, "trimtab_door_ttft_seconds_sum") == 30.5, "its first token it did see"


def test_a_refusal_is_counted_and_its_wait_is_not_a_wait_of_those_who_were_served() -> None:
    tally = Tally()
    tally.take(raw(termination="sQ--", status=503, server="<NOSRV>", wait_ms=60_000, ttft_ms=""))
    assert sample(tally.registry, "trimtab_door_requests_total", outcome="refused", slot="none") == 1
    assert sample(tally.registry, "trimtab_door_wait_seconds_count") == 0


def test_half_a_line_is_counted_and_harms_no_other() -> None:
    tally = Tally()
    assert tally.take(raw()[:-9]) is None
    assert tally.take(raw()) is not None
    assert sample(tally.registry, "trimtab_door_malformed_lines_total") == 1
    assert sample(tally.registry, "trimtab_door_lines_total") == 1


@pytest.mark.parametrize("key", ["pool", "server", "class"])
def test_a_flood_of_names_makes_no_more_series_than_allowed(key: str) -> None:
    tally = Tally(series_max=10)
    for number in range(10):
        tally.take(raw(**{key: f"n{number}"}))
    assert sample(tally.registry, "trimtab_door_crowded_lines_total") == 0
    for number in range(10, 40):
        tally.take(raw(**{key: f"n{number}"}))
    tally.take(raw(**{key: "n3"}))
    assert sample(tally.registry, "trimtab_door_crowded_lines_total") == 30
    assert sample(tally.registry, "trimtab_door_requests_total") == 11


def test_a_line_beyond_the_label_sets_was_read_all_the_same() -> None:
    """Else it would count as lost as well, and nothing was."""
    tally = Tally(series_max=1)
    for number in range(5):
        tally.take(raw(server=f"n{number}"))
    assert tally.read()[7, "chat-8b"] == 5


def test_a_line_costs_no_more_where_many_are_known() -> None:
    tally = Tally()
    for number in range(3000):
        tally.take(raw(pool=f"n{number}", status=503, termination="PR--"))
    few = Tally()

    def seconds(of: Tally) -> float:
        began = time.perf_counter()
        for _ in range(300):
            of.take(raw())
        return time.perf_counter() - began

    assert min(seconds(tally) for _ in range(3)) < 5 * min(seconds(few) for _ in range(3))


def test_lines_of_ever_new_processes_do_not_fill_the_memory() -> None:
    tally = Tally()
    for pid in range(1, 200):
        tally.take(raw(pid=pid))
    assert len(tally.read()) <= 9
    assert tally.read()[199, "chat-8b"] == 1
