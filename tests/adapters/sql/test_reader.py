"""Reading the record: filters, pages, folding, and rows that cannot be read."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import text

from controlplane import forms
from controlplane.adapters.sql.codec import Damaged
from controlplane.adapters.sql.engine import reading
from controlplane.adapters.sql.open import Record
from controlplane.adapters.sql.reader import Filter, Listed
from controlplane.domain.ids import CycleKind, DecisionId, PoolName, Source
from controlplane.domain.plan import Outcome
from controlplane.domain.policy import Mode
from tests.adapters.sql.conftest import Rows, Sql
from tests.adapters.sql.records import answer, cycle_id, made, weight
from tests.builders import NOW
from tests.databases import only_postgresql, only_sqlite

CHAT = DecisionId(cycle_id(), PoolName("chat-8b"))


def steady(record: Record, count: int, *, start: int = 1) -> None:
    """Ticks of two pools that find nothing to do, five seconds apart, with figures that move."""
    for seq in range(start, start + count):
        quiet = [answer(pool=pool, code="within_deadband", figure=None) for pool in ("chat-8b", "vision")]
        record.ledger.record(made(*quiet, seq=seq, at=NOW + 5.0 * seq))


def test_a_steady_hour_is_one_row_a_pool_and_every_tick_is_still_there(record: Record, rows: Rows) -> None:
    """B-193: a log of changes, not of ticks; the ticks answer "why did it not scale?"."""
    steady(record, 20)
    folded = record.reader.streaks(Filter(), 100)
    assert [(each.id.pool, each.repeats, each.first_at, each.at) for each in folded] == [
        ("chat-8b", 20, NOW + 5, NOW + 100),
        ("vision", 20, NOW + 5, NOW + 100),
    ]
    assert len(record.reader.decisions(Filter(), 100)) == 40 == rows("decisions")


def test_a_change_ends_the_streak_and_what_follows_is_a_new_one(record: Record) -> None:
    steady(record, 3)
    record.ledger.record(made(answer(weight()), seq=4, at=NOW + 20))
    steady(record, 2, start=5)
    chat = record.reader.streaks(Filter(pool="chat-8b"), 100)
    assert [(each.outcome, each.repeats) for each in chat] == [
        (Outcome.NOTHING_TO_DO, 2),
        (Outcome.CHANGE, 1),
        (Outcome.NOTHING_TO_DO, 3),
    ]
    (vision,) = record.reader.streaks(Filter(pool="vision"), 100)
    assert vision.repeats == 5, "another pool's change does not end it"


def test_what_acts_is_never_folded_and_the_same_wish_is(record: Record) -> None:
    for seq in (1, 2):
        record.ledger.record(made(answer(weight()), seq=seq))
    for seq in (3, 4):
        record.ledger.record(made(answer(weight(), mode=Mode.OBSERVE), seq=seq))
    assert [each.repeats for each in record.reader.streaks(Filter(), 10)] == [2, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        answer(code="cooldown", figure=6.0),
        answer(mode=Mode.OBSERVE, figure=6.0),
        answer(figure=7.0),
        answer(weight(), mode=Mode.OBSERVE, figure=6.0),
    ],
    ids=["reason", "mode", "size", "level"],
)
def test_another_reason_mode_size_or_level_is_not_the_same_again(record: Record, other: object) -> None:
    record.ledger.record(made(answer(figure=6.0), seq=1))
    record.ledger.record(made(other, seq=2))  # type: ignore[arg-type]
    assert [each.repeats for each in record.reader.streaks(Filter(), 10)] == [1, 1]


def test_a_streak_that_still_goes_on_is_found_by_when_it_was_last_true(record: Record) -> None:
    steady(record, 10)
    assert [each.repeats for each in record.reader.streaks(Filter(since=NOW + 40), 10)] == [10, 10]
    assert record.reader.streaks(Filter(since=NOW + 51), 10) == []


@pytest.fixture
def mixed(record: Record) -> Record:
    record.ledger.record(made(answer(weight()), answer(pool="vision"), seq=1, at=NOW))
    record.ledger.record(made(answer(code="cooldown"), seq=2, at=NOW + 5))
    record.ledger.record(made(answer(figure=6.0), seq=1, at=NOW + 5, kind=CycleKind.CAPACITY))
    return record


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (Filter(pool="vision"), ["demo:weights:1:vision"]),
        (Filter(kind=CycleKind.CAPACITY), ["demo:capacity:1:chat-8b"]),
        (Filter(outcome=Outcome.CHANGE), ["demo:weights:1:chat-8b"]),
        (Filter(code="cooldown"), ["demo:weights:2:chat-8b"]),
        (Filter(since=NOW + 5), ["demo:capacity:1:chat-8b", "demo:weights:2:chat-8b"]),
        (Filter(until=NOW + 5), ["demo:weights:1:chat-8b", "demo:weights:1:vision"]),
        (Filter(code="never_used"), []),
        (Filter(cluster="other"), []),
        (Filter(source=Source.DEMO), []),
        (Filter(run_id="another"), []),
        (
            Filter(cluster="demo", source=Source.LIVE, pool="chat-8b", code="cooldown"),
            ["demo:weights:2:chat-8b"],
        ),
    ],
    ids=str,
)
def test_lists_hold_what_was_asked_for_and_nothing_else(
    mixed: Record, chosen: Filter, ids: list[str]
) -> None:
    assert [str(each.id) for each in mixed.reader.decisions(chosen, 10)] == ids
    assert [str(each.id) for each in mixed.reader.streaks(chosen, 10)] == ids


Ask = Callable[[Filter, int, DecisionId | None], Sequence[Listed]]


def pages(ask: Ask, size: int) -> list[str]:
    """Everything, a page at a time."""
    found: list[Listed] = []
    last: DecisionId | None = None
    while page := ask(Filter(), size, last):
        found += page
        last = page[-1].id
    return [str(each.id) for each in found]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_pages_neither_repeat_a_row_nor_leave_one_out(record: Record, size: int) -> None:
    """Many rows share an instant: several pools and both kinds decide in one cycle's time."""
    for seq in range(1, 6):
        several = [answer(weight(seq), pool=pool) for pool in ("chat-8b", "reason-70b", "vision")]
        for kind in CycleKind:
            record.ledger.record(made(*several, seq=seq, at=NOW + seq // 2, kind=kind))
    for ask in (record.reader.decisions, record.reader.streaks):
        whole = [str(each.id) for each in ask(Filter(), 100)]
        assert pages(ask, size) == whole
        assert len(set(whole)) == 30


def test_a_streak_that_grows_between_two_pages_is_neither_repeated_nor_skips_another(record: Record) -> None:
    steady(record, 3)
    (first,) = record.reader.streaks(Filter(), 1)
    steady(record, 2, start=4)
    (second,) = record.reader.streaks(Filter(), 5, first.id)
    assert (first.id.pool, second.id.pool, second.repeats) == ("chat-8b", "vision", 5)


def test_a_page_cannot_follow_what_is_not_on_record(record: Record) -> None:
    with pytest.raises(Damaged, match="no page can follow"):
        record.reader.decisions(Filter(), 5, CHAT)


def lists(table: str) -> list[str]:
    """How a page of each list is asked for."""
    at = {"decisions": "decided_at", "streaks": "first_at"}[table]
    return [
        f"SELECT 1 FROM {table} WHERE {narrower}cluster = 'demo' ORDER BY {at} DESC LIMIT 30"  # noqa: S608
        for narrower in ("", "pool = 'chat-8b' AND ", "code_id = 1 AND ", "outcome = 'change' AND ")
    ]


@only_sqlite
@pytest.mark.parametrize("table", ["decisions", "streaks"])
def test_on_sqlite_lists_are_read_along_an_index_and_never_sorted(
    record: Record, sql: Sql, table: str
) -> None:
    """B-154: a page costs the same with ten rows and with ten million."""
    for query in lists(table):
        plan = " ".join(str(row[3]) for row in sql(f"EXPLAIN QUERY PLAN {query}"))
        assert "USING" in plan
        assert "TEMP B-TREE" not in plan


@only_postgresql
@pytest.mark.parametrize("table", ["decisions", "streaks"])
def test_on_postgresql_lists_can_be_read_along_an_index_and_need_no_sorting(
    record: Record, table: str
) -> None:
    """B-154. A table of few rows is rather read whole, so here it is asked for what it would do with many."""
    with reading(record.engine) as session:
        for way in ("seqscan", "bitmapscan", "sort", "incremental_sort"):
            session.execute(text(f"SET LOCAL enable_{way} = off"))
        for query in lists(table):
            plan = " ".join(session.scalars(text(f"EXPLAIN {query}")))
            assert "Index" in plan
            assert "Sort" not in plan


def broken(body: bytes) -> bytes:
    return body[:-3]


def hostile(_body: bytes) -> bytes:
    return zlib.compress(b'{"form":"decision/99"}')


@pytest.mark.parametrize("damage", [broken, hostile, lambda _body: b"", lambda _body: b"plain"])
def test_a_damaged_row_is_named_and_harms_no_other(
    record: Record, sql: Sql, damage: Callable[[bytes], bytes]
) -> None:
    record.ledger.record(made(answer(), answer(pool="vision")))
    ((body,),) = sql("SELECT body FROM decisions WHERE pool = 'vision'")
    assert isinstance(body, bytes)
    sql("UPDATE decisions SET body = ? WHERE pool = 'vision'", damage(body))
    with pytest.raises(Damaged, match="demo:weights:1:vision"):
        record.reader.decisions(Filter(), 10)
    assert record.reader.decision(CHAT) is not None


def test_a_codec_of_a_newer_version_is_named_with_the_row(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer()))
    sql("UPDATE frames SET codec = 7")
    with pytest.raises(Damaged, match=r"demo:weights:1: written with codec 7; this version reads 1"):
        record.reader.cycle(cycle_id())


def test_a_word_that_this_version_does_not_know_is_named(record: Record, sql: Sql) -> None:
    record.ledger.record(made(answer(weight())))
    sql("UPDATE actions SET action_kind = 'teleport'")
    with pytest.raises(Damaged, match="teleport"):
        record.reader.actions(CHAT)


def test_decisions_that_somebody_changed_are_not_taken_for_the_plan(record: Record, sql: Sql) -> None:
    cycle = made(answer(weight(75)))
    record.ledger.record(cycle)
    stored = record.reader.cycle(cycle.cycle)
    assert stored is not None
    assert record.reader.plan(cycle.cycle, stored) == cycle.plan
    forged = zlib.compress(forms.to_json(answer(weight(200))).encode())
    sql("UPDATE decisions SET body = ?", forged)
    with pytest.raises(Damaged, match="not those that were recorded"):
        record.reader.plan(cycle.cycle, stored)


def test_a_cycle_whose_inputs_are_no_longer_kept_says_so_and_its_decisions_stay(
    record: Record, sql: Sql
) -> None:
    record.ledger.record(made(answer()))
    sql("DELETE FROM frames")
    with pytest.raises(Damaged, match="no longer kept"):
        record.reader.cycle(cycle_id())
    assert record.reader.decision(CHAT) is not None


def test_the_nearest_cycle_is_one_of_the_same_kind(record: Record) -> None:
    assert record.reader.nearest(cycle_id(3)) is None
    for seq in (2, 9):
        record.ledger.record(made(answer(), seq=seq))
    record.ledger.record(made(answer(), seq=3, kind=CycleKind.CAPACITY))
    assert record.reader.nearest(cycle_id(3)) == cycle_id(2)
    assert record.reader.nearest(cycle_id(99)) == cycle_id(9)


def test_counts_are_by_outcome_and_by_state_of_one_run_or_all(record: Record) -> None:
    record.ledger.record(made(answer(weight()), answer(pool="vision")))
    counted = {"change": 1, "nothing_to_do": 1, "action_applying": 1}
    assert record.reader.counts() == counted == record.reader.counts(record.run_id)
    assert record.reader.counts("another") == {}


def test_a_run_says_where_it_came_from(record: Record) -> None:
    ((cluster, run_id, source, _at),) = record.reader.runs()
    assert (cluster, run_id, source) == ("demo", record.run_id, "live")
