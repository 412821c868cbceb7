"""Where the instances of a fleet sit at the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.twin.live import fleet
from controlplane.twin.live.fleet import BUFFER, GPUS_A_NODE, PoolPlan, Seat, seats


def plan(name: str, tp: int, instances: int, lent_by: str | None, sleepers: int) -> PoolPlan:
    return PoolPlan(name, "m", "p", tp, instances, 6, lent_by=lent_by, sleepers=sleepers)


PLANS = st.lists(
    st.builds(
        plan,
        st.just("pool"),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 9),
        st.none(),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=4,
).map(lambda made: [plan(f"pool-{n}", p.tp, p.instances, None, p.sleepers) for n, p in enumerate(made)])


def cards(placed: Iterable[Seat]) -> list[tuple[str, int]]:
    return [(seat.node, gpu) for seat in placed for gpu in seat.gpus]


@given(PLANS, st.integers(0, 4), st.integers(0, 4))
def test_every_card_has_at_most_one_awake_instance_and_lent_ones_stand_on_the_buffer(
    own: list[PoolPlan], first_lent: int, second_lent: int
) -> None:
    lent = [plan("lent-1", 1, first_lent, BUFFER, 0), plan("lent-2", 2, second_lent, BUFFER, 0)]
    nodes = sum(-(-each.instances * each.tp // GPUS_A_NODE) for each in own) + 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "FLEETS", {"made": ((*lent, *own), nodes)})
        placed, owner = seats("made", 1)
    awake = [seat for seat in placed if not seat.asleep]
    assert max(Counter(cards(awake)).values()) == 1
    assert {gpu for _, gpu in cards(placed)} <= set(range(GPUS_A_NODE))
    for seat in placed:
        mine = seat.pool.lent_by is None and not seat.asleep
        assert owner[seat.node] == (seat.pool.name if mine else None)


def test_a_fleet_is_the_same_for_a_seed_and_its_cards_differ_between_seeds() -> None:
    assert seats("small", 1) == seats("small", 1)
    one, two = (seats("small", seed)[0] for seed in (1, 2))
    assert [seat.slot for seat in one] == [seat.slot for seat in two]
    assert [seat.speed for seat in one] != [seat.speed for seat in two]
    assert Counter(seat.pool.name for seat in one if not seat.asleep) == {
        "chat-8b": 12,
        "batch-eval": 4,
        "reason-70b": 4,
        "vision": 4,
    }
