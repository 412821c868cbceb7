"""Lost lines: found when they stay away, never invented while they are on their way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.door.lost import LOOKS, Look, Losses


def after(*looks: tuple[int, int, int]) -> int:
    """Lost lines of one pool after looks of (pid, ended, lines read of that pid)."""
    losses = Losses()
    for pid, ended, lines in looks:
        losses.look(Look(pid, {"chat": ended}), {(pid, "chat"): lines})
    return losses.by_pool().get("chat", 0)


def test_a_line_on_its_way_is_no_loss_and_one_that_stays_away_is() -> None:
    assert after((7, 0, 0), *[(7, 10, 9)] * (LOOKS - 1)) == 0
    assert after((7, 0, 0), *[(7, 10, 9)] * LOOKS) == 1


def test_what_ended_before_we_began_to_read_is_no_loss() -> None:
    assert after(*[(7, 5000, 0)] * (LOOKS + 1)) == 0
    assert after((7, 5000, 0), *[(7, 5003, 1)] * LOOKS) == 2


def test_a_loss_is_not_taken_back_when_later_lines_run_ahead() -> None:
    assert after((7, 0, 0), *[(7, 10, 8)] * LOOKS, *[(7, 12, 12)] * LOOKS) == 2


def test_a_restarted_gateway_counts_anew_and_its_losses_are_added() -> None:
    first = ((7, 0, 0), *[(7, 10, 9)] * LOOKS)
    assert after(*first, (8, 0, 0), *[(8, 3, 3)] * LOOKS) == 1
    assert after(*first, *[(8, 3, 1)] * LOOKS) == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=60))
def test_losses_never_fall_and_are_never_more_than_was_lost_while_the_reader_catches_up(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each step ends some requests, some of which are lost; the other lines come at once or a look late,
    and at once every few looks."""
    losses, ended, lines, truly, found, late = Losses(), 0, 0, 0, 0, 0
    losses.look(Look(7, {"chat": 0}), {})
    for number, (ends, lose, at_once) in enumerate(steps):
        gone = min(ends, lose)
        came = ends - gone
        lines += late
        late = 0 if at_once or number % (LOOKS // 2) == 0 else came
        ended, truly, lines = ended + ends, truly + gone, lines + came - late
        losses.look(Look(7, {"chat": ended}), {(7, "chat"): lines})
        now = losses.by_pool()["chat"]
        assert found <= now <= truly
        found = now
    for _ in range(LOOKS):
        losses.look(Look(7, {"chat": ended}), {(7, "chat"): lines + late})
    assert losses.by_pool()["chat"] == truly
