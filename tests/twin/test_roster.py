"""What orders may do to the instances of a fleet: pure, whatever comes in whatever order."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.twin.live.lifecycle import Level, Phase, Record, following
from controlplane.twin.live.orchestrator import Orchestrator
from controlplane.twin.live.orders import Order, Place, base36
from controlplane.twin.live.roster import Bounds, Refused, Roster, Unknown

BOUNDS = Bounds({"n1": 4, "n2": 4}, {"small": 1, "wide": 2}, {"small": 16.0, "wide": 100.0}, 140.0)
NOW = 1_800_000_000.0


def roster(*records: Record) -> Roster:
    made = Roster("demo", BOUNDS, lambda: NOW)
    for record in records:
        made.add(record)
    return made


def record(slot: str, gpu: int, phase: Phase = Phase.SERVING, *, managed: bool = True) -> Record:
    wanted = Level.ASLEEP if phase is Phase.ASLEEP else Level.AWAKE
    return Record(f"demo/{slot}@1", "small", "n1", (gpu,), None, managed, 1.0, phase, wanted)


def order(slot: str, level: Level, place: Place | None = None, start: int = 1) -> Order:
    return Order("a-1", f"demo/{slot}@{base36(start)}", level, place)


def walk(one: Roster, slot: str) -> list[Phase]:
    """Every phase that follows, until the slot is at rest."""
    walked: list[Phase] = []
    while (here := one.records.get(slot)) is not None and (phase := following(here)) is not None:
        one.enter(here, phase)
        walked.append(phase)
        assert len(walked) < 10
    return walked


def seen(one: Roster) -> dict[str, object]:
    return {slot: asdict(each) for slot, each in one.records.items()}


PLACES = st.builds(
    Place,
    pool=st.sampled_from(["small", "wide", "nobody"]),
    node=st.sampled_from(["n1", "n2", "n9"]),
    gpus=st.sampled_from([(0,), (1,), (3,), (4,), (0, 1), (1, 2), (2, 3)]),
    lent_by=st.sampled_from([None, "buffer"]),
)
ORDERS = st.builds(
    order,
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(Level),
    st.none() | PLACES,
    st.integers(1, 2),
)
DEEDS = st.lists(
    ORDERS | st.tuples(st.sampled_from(["next", "crash"]), st.sampled_from(["a", "b", "c", "d"])), max_size=40
)


@given(DEEDS)
def test_no_gpu_is_ever_held_twice_and_host_memory_never_overdrawn(
    deeds: list[Order | tuple[str, str]],
) -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP), record("c", 1, managed=False))
    for deed in deeds:
        do(one, deed)
        awake = [each for each in one.records.values() if each.phase not in {Phase.ASLEEP, Phase.GONE}]
        held = Counter((each.node, gpu) for each in awake for gpu in each.gpus)
        assert max(held.values(), default=0) <= 1
        for node in BOUNDS.nodes:
            asleep = [
                each for each in one.records.values() if each.node == node and each.phase is Phase.ASLEEP
            ]
            assert sum(BOUNDS.weights_gib[each.pool] for each in asleep) <= BOUNDS.host_memory_gib
        assert {each.slot for each in one.records.values()} == set(one.records)


def do(one: Roster, deed: Order | tuple[str, str]) -> None:
    """One order, a step of a life, or a crash. A refusal leaves everything as it was, and an order that
    was taken changes nothing a second time."""
    if isinstance(deed, Order):
        before = copy.deepcopy(seen(one))
        try:
            one.order(deed)
        except Refused:
            assert seen(one) == before
        else:
            after = copy.deepcopy(seen(one))
            assert one.order(deed) is False
            assert seen(one) == after
    elif (here := one.records.get(deed[1])) is not None:
        if deed[0] == "crash":
            one.crash(here)
        elif (phase := following(here)) is not None:
            one.enter(here, phase)


@given(DEEDS, st.sampled_from(Level))
def test_whatever_was_ordered_before_a_level_that_is_taken_is_reached(
    deeds: list[Order | tuple[str, str]], level: Level
) -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP))
    for deed in deeds:
        do(one, deed)
    for slot, here in list(one.records.items()):
        try:
            one.order(Order("a-2", here.instance_id, level, None))
        except Refused:
            continue
        walk(one, slot)
        reached = {Level.AWAKE: Phase.SERVING, Level.ASLEEP: Phase.ASLEEP, Level.GONE: Phase.GONE}
        assert here.phase is reached[level]


def test_a_new_instance_comes_up_phase_by_phase_and_is_ready_only_at_the_end() -> None:
    one = roster()
    assert one.order(order("a", Level.AWAKE, Place("small", "n1", (2,), "buffer"), start=71))
    made = one.records["a"]
    assert (made.instance_id, made.started_at, made.managed, made.lent_by) == (
        "demo/a@1z",
        71.0,
        True,
        "buffer",
    )
    assert (made.phase, made.ready_at) == (Phase.REQUESTED, None)
    assert walk(one, "a") == [Phase.LOADING, Phase.HEALTHY, Phase.WARMING, Phase.SERVING]
    assert made.ready_at == NOW


def test_an_unknown_one_that_is_wanted_asleep_loads_and_then_sleeps() -> None:
    one = roster()
    assert one.order(order("a", Level.ASLEEP, Place("small", "n1", (2,), None)))
    assert walk(one, "a") == [Phase.LOADING, Phase.HEALTHY, Phase.DRAINING, Phase.ASLEEP]
    assert one.records["a"].ready_at is None


def test_one_that_falls_asleep_turns_round_when_it_is_asleep_and_keeps_its_gpu_meanwhile() -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP))
    assert one.order(order("a", Level.ASLEEP))
    assert one.order(order("a", Level.AWAKE))
    assert one.records["a"].phase is Phase.DRAINING
    one.enter(one.records["a"], Phase.ASLEEP)
    with pytest.raises(Refused, match="GPU 0 of n1 is held by demo/a@1"):
        one.order(order("b", Level.AWAKE))
    assert walk(one, "a") == [Phase.WAKING, Phase.WARMING, Phase.SERVING]


def test_a_gpu_is_free_when_its_holder_sleeps_and_not_before() -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP))
    for asked in (None, Level.ASLEEP):
        if asked:
            one.order(order("a", asked))
        with pytest.raises(Refused, match="GPU 0 of n1 is held by demo/a@1"):
            one.order(order("b", Level.AWAKE))
    walk(one, "a")
    assert one.order(order("b", Level.AWAKE))
    with pytest.raises(Refused, match=r"held by demo/b@1 \(waking\)"):
        one.order(order("a", Level.AWAKE))


def test_one_that_is_going_away_is_not_called_back_and_its_id_never_comes_again() -> None:
    one = roster(record("a", 0))
    assert one.order(order("a", Level.GONE))
    for level in (Level.AWAKE, Level.ASLEEP):
        with pytest.raises(Refused, match="is going away"):
            one.order(order("a", level))
    assert walk(one, "a") == [Phase.GONE]
    with pytest.raises(Refused, match="is gone, and does not come back"):
        one.order(order("a", Level.AWAKE, Place("small", "n1", (0,), None)))
    assert one.order(order("a", Level.GONE)) is False
    assert one.order(order("a", Level.AWAKE, Place("small", "n1", (0,), None), start=2))


def test_a_sleeper_goes_without_ever_being_awake() -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP))
    assert one.order(order("b", Level.GONE))
    assert walk(one, "b") == [Phase.GONE]


def test_a_slot_with_another_start_is_named_and_to_end_an_old_start_changes_nothing() -> None:
    one = roster(record("a", 0))
    with pytest.raises(Refused, match=r"the slot a is that of demo/a@1 \(serving\)"):
        one.order(order("a", Level.AWAKE, Place("small", "n1", (0,), None), start=2))
    assert one.order(order("a", Level.GONE, start=2)) is False
    assert one.records["a"].wanted is Level.AWAKE


def test_only_what_is_managed_takes_orders_and_adopting_says_whether_it_was_new() -> None:
    one = roster(record("a", 0, managed=False))
    with pytest.raises(Refused, match="demo/a@1 is not managed here: adopt it first"):
        one.order(order("a", Level.ASLEEP))
    with pytest.raises(Unknown, match=r"unknown instance 'demo/a@2'; known: demo/a@1"):
        one.adopt("demo/a@2")
    assert [one.adopt("demo/a@1"), one.adopt("demo/a@1")] == [True, False]
    assert one.order(order("a", Level.ASLEEP))


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (None, "demo/z@1 is unknown, so its spec is needed"),
        (Place("nobody", "n1", (1,), None), "spec.pool: unknown 'nobody'; known: small, wide"),
        (Place("small", "n9", (1,), None), "spec.node: unknown 'n9'; known: n1, n2"),
        (Place("small", "n1", (4,), None), "spec.gpus: n1 has no GPU 4; allowed 0..3"),
        (Place("wide", "n1", (1,), None), "spec.gpus: 1 given; an instance of wide has 2"),
        (Place("wide", "n1", (0, 1), None), "GPU 0 of n1 is held by demo/a@1 (serving)"),
    ],
)
def test_what_cannot_be_made_is_refused_in_words(place: Place | None, says: str) -> None:
    one = roster(record("a", 0))
    with pytest.raises(Refused) as refused:
        one.order(order("z", Level.AWAKE, place))
    assert says in str(refused.value)
    assert set(one.records) == {"a"}


def test_a_spec_of_what_exists_has_to_agree_but_for_who_lends_it() -> None:
    one = roster(record("a", 0))
    for wrong, says in (
        (Place("wide", "n1", (0,), None), "spec.pool is wide; demo/a@1 has small"),
        (Place("small", "n2", (0,), None), "spec.node is n2; demo/a@1 has n1"),
        (Place("small", "n1", (1,), None), r"spec.gpus is \[1\]; demo/a@1 has \[0\]"),
    ):
        with pytest.raises(Refused, match=says):
            one.order(order("a", Level.AWAKE, wrong))
    lent = order("a", Level.AWAKE, Place("small", "n1", (0,), "buffer"))
    assert [one.order(lent), one.order(lent)] == [True, False]
    assert one.records["a"].lent_by == "buffer"


def test_host_memory_takes_as_many_sleepers_as_fit_and_no_more() -> None:
    one = roster(*(record(f"s{gpu}", gpu, Phase.ASLEEP) for gpu in range(2)), record("a", 3))
    assert one.order(order("w", Level.ASLEEP, Place("wide", "n1", (0, 1), None)))
    with pytest.raises(
        Refused, match="n1 has 140 GiB of host memory for sleepers, 132 are taken, a needs 16"
    ):
        one.order(order("a", Level.ASLEEP))
    assert one.order(order("s0", Level.GONE))
    walk(one, "s0")
    assert one.order(order("a", Level.ASLEEP))


def test_a_sleeper_that_crashes_comes_back_by_loading_where_its_gpu_is_free_and_else_is_gone() -> None:
    one = roster(record("a", 0), record("b", 0, Phase.ASLEEP), record("c", 1, Phase.ASLEEP))
    for slot in ("b", "c"):
        one.crash(one.records[slot])
    assert "b" not in one.records
    assert one.records["c"].instance_id == f"demo/c@{base36(int(NOW))}"
    assert walk(one, "c") == [Phase.HEALTHY, Phase.DRAINING, Phase.ASLEEP]


def test_no_start_of_a_slot_ever_has_the_id_of_another() -> None:
    one, place, ids = roster(), Place("small", "n1", (0,), None), []
    for start in (1, 2):
        one.order(order("a", Level.AWAKE, place, start))
        one.crash(one.records["a"])
        ids.append(one.records["a"].instance_id)
        one.order(Order("a-3", ids[-1], Level.GONE, None))
        walk(one, "a")
    assert ids == [f"demo/a@{base36(int(NOW))}", f"demo/a@{base36(int(NOW) + 1)}"]


def test_what_is_gone_stays_listed_for_a_minute_and_then_vanishes() -> None:
    now = [NOW]
    one = Roster("demo", BOUNDS, lambda: now[0])
    stub: Any = SimpleNamespace(
        record=record("a", 0, Phase.ASLEEP),
        address="127.0.0.1:1",
        evicted=0,
        broken=0,
        spec=SimpleNamespace(model="m"),
        follow=lambda: one.enter(stub.record, Phase.GONE),
    )
    orchestrator = Orchestrator(one, lambda _record, _roster: stub)
    one.add(stub.record)
    sent = {"action_id": "a-1", "instance_id": "demo/a@1", "state": "gone"}
    assert orchestrator.order(sent)[1]["changed"] is True
    for now[0], phases in ((NOW + 59.9, ["gone"]), (NOW + 60.0, [])):
        assert [row["phase"] for row in orchestrator.rows()] == phases
    assert orchestrator.order(sent) == (200, {"changed": False, "phase": "gone"})
