"""Lines where something changed, and silence where nothing did."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from controlplane.domain.decide import decide
from controlplane.domain.explanation import Explanation, Step, Vote
from controlplane.domain.ids import CycleId, CycleKind, PoolName
from controlplane.domain.observation import SourceHealth
from controlplane.domain.plan import Decision, Outcome, Plan
from controlplane.domain.policy import Mode, PolicyVersion
from controlplane.domain.state import State
from controlplane.loop.cycle import Report
from controlplane.ports import MetricsAnswer
from controlplane.telemetry.news import News
from tests.builders import NO_FORECAST, NOW, policies, pool_policy, steady_pool
from tests.loop.world import SLOW, World

WEIGHTS, CAPACITY = CycleKind.WEIGHTS, CycleKind.CAPACITY
VERSION = PolicyVersion("", "0" * 64)
HOUR = 240
"""Cycles of 15 s in an hour."""


class Kept(logging.Handler):
    """Keeps what was logged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """All that the controller said so far. (`caplog.records` is another list in every phase of a test.)"""
    caplog.set_level(logging.INFO, "trimtab")
    kept = Kept()
    logging.getLogger("trimtab").addHandler(kept)
    yield kept.records
    logging.getLogger("trimtab").removeHandler(kept)


def messages(lines: Sequence[logging.LogRecord]) -> list[str]:
    return [each.getMessage() for each in lines]


def test_an_hour_of_a_steady_fleet_is_one_line_a_pool_and_then_silence(
    lines: list[logging.LogRecord],
) -> None:
    """B-193: 20 pools, 15 s ticks, real decisions over readings that breathe a little."""
    first, *others = [f"pool-{number:02d}" for number in range(20)]
    rules, news, state = policies(pool_policy(first)), News(), State()
    for tick in range(HOUR):
        now, running = NOW + 15.0 * tick, 10.0 + 0.2 * (tick % 3)
        seen = steady_pool(2, running=running, pool=first, kind=CAPACITY, now=now)
        plan, state = decide(seen, rules, state, NO_FORECAST)
        # One pool is decided for real; the others get its decision under their own names.
        news.tell(report(dict.fromkeys([first, *others], only(plan)), tick))
        if tick == 0:
            assert len(lines) == 20
    assert messages(lines)[20:] == []


def test_a_change_is_one_line_and_the_calm_after_it_none(lines: list[logging.LogRecord]) -> None:
    """B-193: one event a pool and change; that the pool then stays is no event."""
    news = News()
    news.tell(report({"chat-8b": decision(Outcome.NOTHING_TO_DO, "calm")}, 1))
    lines.clear()
    news.tell(report({"chat-8b": decision(Outcome.CHANGE, "grow", 4, 6)}, 2))
    assert len(lines) == 1
    assert "4 to 6" in lines[0].getMessage()
    assert "demo:capacity:2:chat-8b" in lines[0].getMessage()
    for tick in range(3, 8):
        news.tell(report({"chat-8b": decision(Outcome.NOTHING_TO_DO, "calm")}, tick))
    assert len(lines) == 1


def test_a_second_change_of_the_same_kind_is_a_new_line(lines: list[logging.LogRecord]) -> None:
    news = News()
    news.tell(report({"chat-8b": decision(Outcome.CHANGE, "grow", 4, 6)}, 1))
    news.tell(report({"chat-8b": decision(Outcome.CHANGE, "grow", 6, 7)}, 2))
    assert len(lines) == 2


def test_the_same_change_asked_for_again_and_again_is_said_once(lines: list[logging.LogRecord]) -> None:
    """In mode recommend nobody may answer for an hour."""
    news = News()
    for tick in range(HOUR):
        news.tell(report({"chat-8b": decision(Outcome.CHANGE, "grow", 4, 6)}, tick))
    assert len(lines) == 1


def test_a_hold_and_its_end_are_a_line_each(lines: list[logging.LogRecord]) -> None:
    news = News()
    calm, held = decision(Outcome.NOTHING_TO_DO, "calm"), decision(Outcome.HELD, "blind")
    for tick, each in enumerate([calm, held, held, held, calm, calm]):
        news.tell(report({"chat-8b": each}, tick))
    assert [each.levelno for each in lines] == [logging.INFO, logging.WARNING, logging.INFO]


def test_one_pool_s_news_is_no_reason_to_repeat_another_s(lines: list[logging.LogRecord]) -> None:
    news = News()
    calm, broken = decision(Outcome.NOTHING_TO_DO, "calm"), decision(Outcome.FAILED, "failure_rule")
    news.tell(report({"chat-8b": calm, "vision": calm}, 1))
    lines.clear()
    news.tell(report({"chat-8b": calm, "vision": broken}, 2))
    assert len(lines) == 1
    assert "vision" in lines[0].getMessage()


def test_cycles_that_cannot_run_are_said_once_and_so_is_their_return(
    lines: list[logging.LogRecord],
) -> None:
    world, news = World().settled(), News()
    news.tell(world.cycle())
    lines.clear()
    world.ledger.faults["next_seq"].down = "the disk is full"
    for _ in range(5):
        news.tell(world.cycle())
    assert messages(lines) == ["no weights cycle: the disk is full; nothing is touched"]
    world.ledger.faults["next_seq"].down = ""
    for _ in range(5):
        news.tell(world.cycle())
    assert messages(lines)[1:] == ["weights cycles run again"]


def test_a_cycle_that_acted_is_not_said_to_have_touched_nothing(lines: list[logging.LogRecord]) -> None:
    world, news = World().settled(), News()
    world.speed = SLOW
    world.ledger.break_next("settle", "the disk is full")
    news.tell(world.cycle())
    said = messages(lines)
    assert said[0] == "weights cycle: outcomes could not be recorded: the disk is full"
    assert not any("nothing is touched" in each for each in said)
    assert any("chat-8b-04" in each for each in said)


def test_a_blind_hour_is_one_warning(lines: list[logging.LogRecord]) -> None:
    world, news = World().settled(), News()
    news.tell(world.cycle())
    lines.clear()
    world.metrics.say(MetricsAnswer({}, {}, SourceHealth(4, (("all", "no answer"),))))
    for _ in range(60):
        news.tell(world.cycle())
    assert len(lines) == 1
    assert lines[0].levelno == logging.WARNING


def only(plan: Plan) -> Decision:
    [found] = plan.decisions.values()
    return found


def decision(outcome: Outcome, code: str, before: float = 4, after: float = 4) -> Decision:
    step = Step("rule", code, Vote.ABSTAIN)
    explanation = Explanation((step,), "rule", code, before, after)
    return Decision(PoolName("chat-8b"), Mode.AUTO, outcome, (), explanation)


def report(decisions: dict[str, Decision], tick: int) -> Report:
    own = {PoolName(name): replace(each, pool=PoolName(name)) for name, each in decisions.items()}
    return Report(CAPACITY, CycleId("demo", CAPACITY, tick), plan=Plan(CAPACITY, VERSION, own))
