"""Lines as series: edges at the targets, failures in the count, and a bound on how many there can be."""

from __future__ import annotations

import time
from collections.abc import Collection

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from controlplane.door.names import CLASSES_MAX, Names
from controlplane.door.tally import Tally
from tests.door.test_line import raw


def named(*slots: str, targets_s: Collection[float] = ()) -> Tally:
    """Whose gateway named these slots of `chat-8b`."""
    tally = Tally(targets_s)
    tally.name(["chat-8b"], [("chat-8b", slot) for slot in slots or ("chat-8b-03",)], 0)
    return tally


def samples(tally: Tally, name: str) -> list[Sample]:
    families = text_string_to_metric_families(tally.page())
    return [one for family in families for one in family.samples if one.name == name]


def sample(tally: Tally, name: str, **labels: str) -> float:
    """The sum over all samples of a name that carry these labels."""
    return sum(one.value for one in samples(tally, name) if labels.items() <= one.labels.items())


def test_the_share_within_the_target_is_exact_because_the_target_is_an_edge() -> None:
    tally = named(targets_s=[0.8])
    for milliseconds in (799, 800, 801, 900):
        tally.take(raw(ttft_ms=str(milliseconds)))
    within = sample(tally, "trimtab_door_ttft_seconds_bucket", le="0.8", pool="chat-8b")
    assert within == 2
    assert sample(tally, "trimtab_door_ttft_seconds_count") == 4


def test_a_cut_stream_is_a_200_and_a_failure_and_flatters_no_latency() -> None:
    tally = named()
    tally.take(raw())
    before = sample(tally, "trimtab_door_total_seconds_count")
    tally.take(raw(termination="SD--", total_ms=20))
    assert sample(tally, "trimtab_door_requests_total", status="200") == 2
    assert sample(tally, "trimtab_door_requests_total", outcome="cut") == 1
    assert sample(tally, "trimtab_door_total_seconds_count") == before == 1


def test_who_waited_in_vain_counts_as_having_waited_at_least_so_long() -> None:
    """B-049: else the latency is that of the patient alone. Who leaves at once says nothing of us."""
    tally = named(targets_s=[2.0])
    gone = {"termination": "CH--", "status": 400, "ttft_ms": ""}
    tally.take(raw(**gone, total_ms=1900))
    assert sample(tally, "trimtab_door_ttft_seconds_count") == 0
    tally.take(raw(**gone, total_ms=30_000))
    assert sample(tally, "trimtab_door_ttft_seconds_sum") == 30.0
    assert sample(tally, "trimtab_door_total_seconds_sum") == 30.0
    tally.take(raw(termination="CD--", ttft_ms="500", total_ms=10_000))
    assert sample(tally, "trimtab_door_ttft_seconds_sum") == 30.5, "its first token it did see"


def test_a_refusal_is_counted_and_its_wait_is_not_a_wait_of_those_who_were_served() -> None:
    tally = named()
    tally.take(raw(termination="sQ--", status=503, server="<NOSRV>", wait_ms=60_000, ttft_ms=""))
    assert sample(tally, "trimtab_door_requests_total", outcome="refused", slot="none") == 1
    assert sample(tally, "trimtab_door_wait_seconds_count") == 0


def test_half_a_line_is_counted_and_harms_no_other() -> None:
    tally = named()
    assert tally.take(raw()[:-9]) is None
    assert tally.take(raw()) is not None
    assert sample(tally, "trimtab_door_malformed_lines_total") == 1
    assert sample(tally, "trimtab_door_lines_total") == 1


def test_a_flood_of_names_makes_no_series_of_its_own_and_loses_no_line() -> None:
    tally = named()
    tally.take(raw())
    before = len(tally.page())
    for number in range(20_000):
        tally.take(raw(pool=f"p{number}", server=f"s{number}"))
    tally.name((), (), tally.waiting())
    assert sample(tally, "trimtab_door_requests_total", pool="other", slot="other") == 20_000
    assert sample(tally, "trimtab_door_crowded_lines_total") == 20_000
    assert sample(tally, "trimtab_door_requests_total", pool="chat-8b", slot="chat-8b-03") == 1
    assert len(tally.page()) < 3 * before


def test_forged_classes_and_statuses_of_a_real_slot_are_bounded_and_take_no_place_of_another() -> None:
    tally = named("chat-8b-03", "chat-8b-04")
    for number in range(20_000):
        tally.take(raw(**{"class": f"c{number % 200}", "status": 100 + number % 500}))
    tally.take(raw(server="chat-8b-04", status=201))
    pages = tally.page()
    assert sample(tally, "trimtab_door_requests_total") == 20_001
    assert sample(tally, "trimtab_door_requests_total", slot="chat-8b-04", status="201") == 1
    assert len(pages) < 1_000_000


def test_the_first_classes_have_series_of_their_own_and_further_ones_share_one() -> None:
    tally = named(*(f"s{number}" for number in range(40)))
    for number in range(40):
        tally.take(raw(server=f"s{number}", **{"class": f"c{number}"}))
    classes = {one.labels["class"] for one in samples(tally, "trimtab_door_requests_total")}
    assert (len(classes), "c30" in classes, "other" in classes) == (CLASSES_MAX, True, True)


def test_a_member_that_was_just_added_has_its_own_series_after_the_next_look() -> None:
    """Its first line comes before the gateway was asked again; it waits, and for one look only."""
    tally = named()
    for slot in ("new", "forged"):
        tally.take(raw(server=slot))
    assert sample(tally, "trimtab_door_requests_total") == 0
    tally.name(["chat-8b"], [("chat-8b", "new")], tally.waiting())
    assert sample(tally, "trimtab_door_requests_total", slot="new") == 1
    assert sample(tally, "trimtab_door_requests_total", slot="other") == 1


def test_a_line_that_came_while_the_gateway_was_asked_waits_for_the_next_answer() -> None:
    tally = named()
    waited = tally.waiting()
    tally.take(raw(server="new"))
    tally.name(["chat-8b"], [], waited)
    assert sample(tally, "trimtab_door_requests_total") == 0
    tally.name(["chat-8b"], [("chat-8b", "new")], tally.waiting())
    assert sample(tally, "trimtab_door_requests_total", slot="new") == 1


def test_what_reached_no_pool_and_what_got_no_answer_have_words_of_their_own() -> None:
    tally = named()
    tally.take(raw(pool="door", server="<NOSRV>", arrived_ms="", status=404, termination="PR--"))
    tally.take(raw(status=-1, termination="CQ--", server="<NOSRV>"))
    tally.take(raw(status=0, termination="CQ--", server="<NOSRV>"))
    assert sample(tally, "trimtab_door_requests_total", pool="none", slot="none") == 1
    assert sample(tally, "trimtab_door_requests_total", pool="chat-8b", status="none") == 2
    assert sample(tally, "trimtab_door_crowded_lines_total") == 0


def test_beyond_all_label_sets_lines_are_counted_as_other() -> None:
    tally = Tally(names=Names(sets_max=2))
    slots = [f"s{number}" for number in range(5)]
    tally.name(["chat-8b"], [("chat-8b", slot) for slot in slots], 0)
    for slot in slots:
        tally.take(raw(server=slot))
    assert sample(tally, "trimtab_door_requests_total", pool="chat-8b") == 2
    assert sample(tally, "trimtab_door_requests_total", pool="other") == 3
    assert sum(tally.reads.so_far().values()) == 5, "they were read all the same, and are not lost"


def test_a_line_costs_no_more_where_many_are_known() -> None:
    tally, few = named(), named()
    tally.name([f"n{number}" for number in range(3000)], [], 0)
    for number in range(3000):
        tally.take(raw(pool=f"n{number}", server="-", status=503, termination="PR--"))

    def seconds(of: Tally) -> float:
        began = time.perf_counter()
        for _ in range(300):
            of.take(raw())
        return time.perf_counter() - began

    assert min(seconds(tally) for _ in range(3)) < 5 * min(seconds(few) for _ in range(3))
