"""The engine against a clock: what is handed on, what halts, and what a card's duty comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from controlplane.twin.engine.costs import Costs
from controlplane.twin.engine.engine import Engine
from controlplane.twin.live.control import Sample, shares
from controlplane.twin.live.pace import Lateness, Pace
from controlplane.twin.live.stats import Life, Stats

STEP_S = 0.01
COSTS = Costs(
    d0_ms=10.0,
    d1_ms=0.0,
    d2_ms=0.0,
    p1_ms=0.0,
    f=1.0,
    ttft_overhead_ms=0.0,
    kv_tokens=1600,
    max_num_seqs=2,
)


@dataclass(slots=True)
class Played:
    """An engine whose every step takes 10 ms, and a clock to set."""

    now: float = 100.0
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(Engine(COSTS), Stats(), 8, lambda: self.now, Lateness())

    def ask(self, tokens: int) -> int:
        return self.pace.submit(Life(10, tokens, self.now))[0]

    def made_by(self, now: float) -> int:
        """Tokens made until an instant."""
        self.now = now
        self.pace.work()
        return self.pace.stats.generation_tokens


def test_tokens_come_with_the_clock_and_an_idle_engine_stands_still() -> None:
    played = Played()
    assert played.made_by(105.0) == 0
    played.ask(4)
    assert played.made_by(105.0 + 2.5 * STEP_S) == 2
    assert played.made_by(106.0) == 4
    assert played.pace.work()[0] == pytest.approx(4 * STEP_S)


def test_what_halts_makes_nothing_and_goes_on_where_it_was() -> None:
    played = Played()
    played.ask(10)
    assert played.made_by(100.025) == 2
    played.pace.halt()
    played.pace.halt()
    assert played.made_by(150.0) == 2
    played.pace.resume()
    played.pace.resume()
    assert played.made_by(150.0 + 0.4 * STEP_S) == 2
    assert played.made_by(150.0 + 0.6 * STEP_S) == 3
    assert played.made_by(160.0) == 10


def test_who_comes_or_goes_while_it_halts_moves_no_step() -> None:
    played = Played()
    first = played.ask(10)
    played.pace.halt()
    played.now = 140.0
    second = played.ask(3)
    played.pace.give_up(first)
    assert played.made_by(150.0) == 0
    played.pace.resume()
    assert played.made_by(160.0) == 3 + 1  # the step in progress still makes the first one's token
    assert played.pace.stats.finished == {"stop": 0, "length": 1, "abort": 1, "error": 0, "repetition": 0}
    assert second not in played.pace.streams
    assert played.pace.stats.lives == {}
    assert played.pace.engine.free_blocks == COSTS.blocks


def test_an_idle_engine_that_halts_starts_what_came_meanwhile_when_it_goes_on() -> None:
    played = Played()
    played.pace.halt()
    played.now = 140.0
    played.ask(1)
    played.now = 150.0
    played.pace.resume()
    assert played.made_by(150.0 + 0.9 * STEP_S) == 0
    assert played.made_by(150.0 + 1.1 * STEP_S) == 1


def test_a_new_speed_holds_from_the_next_step_on() -> None:
    played = Played()
    played.ask(10)
    played.now = 100.0 + 2.5 * STEP_S  # two steps are over, though nobody has looked yet
    played.pace.set_speed(0.5)
    assert played.made_by(100.0 + 3.1 * STEP_S) == 3
    assert played.made_by(100.0 + 4.9 * STEP_S) == 3
    assert played.made_by(100.0 + 5.1 * STEP_S) == 4


def test_a_caller_who_left_in_the_middle_of_a_step_leaves_nothing_behind() -> None:
    played = Played()
    key = played.ask(10)
    assert played.made_by(100.0 + 1.5 * STEP_S) == 1
    played.pace.give_up(key)
    played.pace.give_up(key)
    assert played.made_by(200.0) == 2
    assert played.pace.engine.next_end is None
    assert played.pace.engine.free_blocks == COSTS.blocks
    assert played.pace.stats.finished["abort"] == 1


def sample(played: Played, now: float, process: object = "first") -> Sample:
    played.now = now
    return Sample(now, process, *played.pace.work())


def test_duty_counts_the_step_in_progress_and_never_more_than_the_time_that_passed() -> None:
    played = Played()
    idle = sample(played, 100.0)
    assert shares(None, idle) == (0.0, 0.0)
    played.ask(1000)
    half = sample(played, 100.0 + STEP_S / 2)
    assert shares(idle, half) == pytest.approx((1.0, 1.0))
    played.ask(1000)  # joins with the next step
    later = sample(played, 101.0 + STEP_S / 2)
    duty, sequences = shares(half, later)
    assert duty == pytest.approx(1.0)
    assert duty <= 1.0
    assert sequences == pytest.approx((0.5 * 1 + 99.5 * 2) / 100)


def test_duty_is_the_share_in_which_it_ran_and_nothing_while_it_halts() -> None:
    played = Played()
    start = sample(played, 100.0)
    played.ask(25)
    done = sample(played, 101.0)
    assert shares(start, done) == pytest.approx((0.25, 1.0))
    played.ask(25)
    played.pace.halt()
    assert shares(done, sample(played, 102.0)) == (0.0, 0.0)


def test_a_new_start_is_not_compared_with_the_one_before() -> None:
    played = Played()
    before = sample(played, 100.0)
    played.ask(25)
    assert shares(before, sample(played, 101.0, "second")) == (0.0, 0.0)
