"""Pages on record: told however often and in whatever order, an alert is one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, select

from controlplane.adapters.sql.engine import open_engine, reading, writing
from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.migrate import migrate
from controlplane.adapters.sql.open import Record, open_reader
from controlplane.adapters.sql.pages import SqlPages
from controlplane.adapters.sql.reader import PageFilter, PageId
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import PageRow
from controlplane.domain.ids import CycleKind, Source
from controlplane.domain.plan import Outcome
from controlplane.domain.policy import Mode
from controlplane.ports import Conflict, Notified, PageStatus, Unavailable
from tests.adapters.sql.conftest import Rows, Sql
from tests.adapters.sql.pages import ended, told
from tests.adapters.sql.records import answer, made, weight
from tests.builders import NOW
from tests.databases import makes, only_sqlite

ID = PageId("demo", "1f0c2d3e4a5b6c7d", NOW)
OTHER = "aaaaaaaaaaaaaaaa"


@pytest.fixture
def pages(record: Record) -> SqlPages:
    return SqlPages(record.engine)


def test_told_again_an_alert_is_the_same_page_with_a_higher_count(
    pages: SqlPages, record: Record, rows: Rows
) -> None:
    """A repeat, the other Alertmanager of a pair, a webhook tried again."""
    assert pages.keep([told()], NOW + 1) == [told()]
    page = record.reader.page(ID)
    assert page is not None
    assert (page.status, page.notifications) == (PageStatus.FIRING, 1)
    assert pages.keep([told(), told()], NOW + 9) == [], "no news"
    page = record.reader.page(ID)
    assert page is not None
    assert (page.status, page.notifications, rows("pages")) == (PageStatus.FIRING, 3, 1)
    assert (page.first_seen_at, page.last_seen_at, page.resolved_at) == (NOW + 1, NOW + 9, None)


def test_its_end_is_news_once_and_a_firing_that_comes_late_does_not_open_it_again(
    pages: SqlPages, record: Record
) -> None:
    pages.keep([told()], NOW + 1)
    assert pages.keep([ended(60)], NOW + 61) == [ended(60)]
    assert pages.keep([told(), ended(60)], NOW + 62) == []
    page = record.reader.page(ID)
    assert page is not None
    assert (page.status, page.resolved_at, page.notifications) == (PageStatus.RESOLVED, NOW + 60, 4)


def test_what_fires_anew_has_a_new_start_and_is_a_new_page(pages: SqlPages, record: Record) -> None:
    pages.keep([told(), ended(60)], NOW + 61)
    assert pages.keep([told(starts_at=NOW + 100)], NOW + 101) == [told(starts_at=NOW + 100)]
    listed = record.reader.pages(PageFilter(), 10)
    assert [(each.id.starts_at, each.status) for each in listed] == [
        (NOW + 100, PageStatus.FIRING),
        (NOW, PageStatus.RESOLVED),
    ]


def test_an_end_of_which_nobody_heard_the_beginning_is_a_page_too(pages: SqlPages, record: Record) -> None:
    assert pages.keep([ended(60)], NOW + 61) == [ended(60)]
    (page,) = record.reader.pages(PageFilter(), 10)
    assert (page.status, page.id.starts_at, page.resolved_at) == (PageStatus.RESOLVED, NOW, NOW + 60)


def test_a_notification_is_kept_whole_or_not_at_all(pages: SqlPages, rows: Rows, sql: Sql) -> None:
    sql("INSERT INTO pages SELECT 'x', '', 0, '', '', '', '{}', '', '', 'firing', 0, 0, NULL, 1, NULL")
    sql(f"CREATE UNIQUE INDEX no ON pages (cluster) WHERE fingerprint IN ('', '{OTHER}')")
    sql("UPDATE pages SET cluster = 'demo'")
    with pytest.raises(Conflict, match="refused it"):
        pages.keep([told(), told(fingerprint=OTHER)], NOW)
    sql("DELETE FROM pages WHERE fingerprint = ''")
    assert rows("pages") == 0
    pages.keep([told()], NOW)
    assert rows("pages") == 1


@only_sqlite
def test_on_sqlite_a_file_that_another_writer_holds_is_unavailable(record: Record, pages: SqlPages) -> None:
    impatient = SqlPages(record.engine.execution_options(busy_s=0.0))
    with writing(record.engine) as other:
        other.execute(delete(PageRow))
        with pytest.raises(Unavailable, match="locked"):
            impatient.keep([told()], NOW)
    assert pages.keep([told()], NOW)


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Engine]:
    """SQLite without a file: thousands of commits need not wait for the disk."""
    engine = open_engine("sqlite://")
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def at_postgresql(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with makes("postgresql", request, tables=True)() as database:
        engine = open_engine(database.url)
        yield engine
        engine.dispose()


NOTIFICATIONS = st.builds(
    lambda fingerprint, start, lasted, summary, after: (
        told(
            fingerprint=fingerprint,
            starts_at=NOW + start,
            ends_at=None if lasted is None else NOW + start + lasted,
            summary=summary,
        ),
        NOW + start + after,
    ),
    st.sampled_from(["1f0c2d3e4a5b6c7d", OTHER]),
    st.sampled_from([0.0, 100.5]),
    st.sampled_from([None, None, 30.0, 31.25]),
    st.sampled_from(["2.1 s", "3.4 s"]),
    st.floats(0, 200),
)


def rows_after(engine: Engine, notifications: Sequence[tuple[Notified, float]]) -> list[tuple[object, ...]]:
    pages = SqlPages(engine)
    with writing(engine) as session:
        session.execute(delete(PageRow))
    for notified, at in notifications:
        pages.keep([notified], at)
    with reading(engine) as session:
        order = (PageRow.fingerprint, PageRow.starts_at)
        return [tuple(row) for row in session.execute(select(*PageRow.__table__.columns).order_by(*order))]


@given(st.data(), st.lists(NOTIFICATIONS, max_size=8))
def test_any_order_of_the_same_notifications_gives_the_same_rows(
    in_memory: Engine, data: st.DataObject, notifications: list[tuple[Notified, float]]
) -> None:
    assert_order_is_no_matter(in_memory, data, notifications)


@settings(max_examples=20)
@given(st.data(), st.lists(NOTIFICATIONS, max_size=8))
def test_on_postgresql_too_any_order_of_the_same_notifications_gives_the_same_rows(
    at_postgresql: Engine, data: st.DataObject, notifications: list[tuple[Notified, float]]
) -> None:
    assert_order_is_no_matter(at_postgresql, data, notifications)


def assert_order_is_no_matter(
    engine: Engine, data: st.DataObject, notifications: list[tuple[Notified, float]]
) -> None:
    shuffled = data.draw(st.permutations(notifications))
    assert rows_after(engine, shuffled) == rows_after(engine, notifications)


@given(st.data(), st.lists(NOTIFICATIONS, min_size=1, max_size=6))
def test_a_notification_that_comes_twice_changes_nothing_but_the_count(
    in_memory: Engine, data: st.DataObject, notifications: list[tuple[Notified, float]]
) -> None:
    twice = [*notifications, data.draw(st.sampled_from(notifications))]
    count = list(PageRow.__table__.columns.keys()).index("notifications")
    once, again = (rows_after(in_memory, each) for each in (notifications, data.draw(st.permutations(twice))))
    assert sum(int(str(row[count])) for row in once) == len(notifications)
    assert sum(int(str(row[count])) for row in again) == len(twice)
    assert [(*row[:count], *row[count + 1 :]) for row in once] == [
        (*row[:count], *row[count + 1 :]) for row in again
    ]


def capacity(record: Record, seq: int, at: float, *, changes: bool = True, pool: str = "chat-8b") -> None:
    decision = answer(*([weight(pool=pool)] if changes else []), pool=pool)
    record.ledger.record(made(decision, seq=seq, at=at, kind=CycleKind.CAPACITY))


def linked(pages: SqlPages, record: Record, notified: Notified, at: float) -> str:
    pages.keep([notified], at)
    page = record.reader.page(PageId("demo", notified.fingerprint, notified.starts_at))
    assert page is not None
    return str(page.decision)


@pytest.mark.parametrize(
    ("changed_at", "expected"),
    [
        (NOW - 61, "demo:capacity:2:chat-8b"),
        (NOW - 60, "demo:capacity:1:chat-8b"),
        (NOW + 50, "demo:capacity:1:chat-8b"),
    ],
)
def test_a_page_is_linked_to_the_first_change_of_capacity_from_a_minute_before_it_on(
    pages: SqlPages, record: Record, changed_at: float, expected: str
) -> None:
    """Else to the last decision before it."""
    capacity(record, 1, changed_at)
    capacity(record, 2, min(changed_at + 5, NOW), changes=False)
    capacity(record, 3, NOW + 60)
    assert linked(pages, record, ended(55), NOW + 61) == expected


def test_while_it_fires_a_page_is_linked_to_a_change_that_comes_after_its_notification(
    pages: SqlPages, record: Record
) -> None:
    capacity(record, 1, NOW - 10, changes=False)
    assert linked(pages, record, told(), NOW + 1) == "demo:capacity:1:chat-8b"
    capacity(record, 2, NOW + 20)
    page = record.reader.page(ID)
    assert page is not None
    assert str(page.decision) == "demo:capacity:2:chat-8b"


def test_another_pools_changes_and_changes_of_weights_are_not_what_a_page_is_linked_to(
    pages: SqlPages, record: Record
) -> None:
    record.ledger.record(made(answer(weight()), seq=1, at=NOW + 1))
    capacity(record, 1, NOW + 1, pool="vision")
    assert linked(pages, record, told(), NOW + 2) == "None"
    assert linked(pages, record, told(fingerprint=OTHER, pool=""), NOW + 2) == "None", "about no pool"


def test_what_the_past_was_decided_again_to_be_is_not_what_a_page_is_linked_to(
    pages: SqlPages, record: Record, sql: Sql
) -> None:
    sql("INSERT INTO runs VALUES ('demo', 'past', 'backtest', 'x', 0)")
    past = SqlLedger(record.engine, Run("demo", "past", Source.BACKTEST))
    past.record(made(answer(weight()), seq=1, at=NOW + 1, kind=CycleKind.CAPACITY))
    assert linked(pages, record, told(), NOW + 2) == "None"
    capacity(record, 2, NOW + 2)
    assert linked(pages, record, told(), NOW + 3) == "demo:capacity:2:chat-8b"


def test_around_a_page_stands_what_changed_or_was_held_from_five_minutes_before_to_five_after(
    pages: SqlPages, record: Record
) -> None:
    for seq, at in enumerate((NOW - 301, NOW - 300, NOW + 10, NOW + 359, NOW + 361), start=1):
        record.ledger.record(made(answer(weight(seq)), answer(pool="vision"), seq=seq, at=at))
    pages.keep([ended(60)], NOW + 60)
    page = record.reader.page(ID)
    assert page is not None
    found = record.reader.around(page)
    assert [str(each.id) for each in found] == [f"demo:weights:{seq}:chat-8b" for seq in (2, 3, 4)]
    assert {each.outcome for each in found} == {Outcome.CHANGE}


def test_around_a_page_the_same_again_is_one_row(pages: SqlPages, record: Record) -> None:
    for seq in range(1, 5):
        record.ledger.record(made(answer(weight(), mode=Mode.OBSERVE), seq=seq, at=NOW + seq))
    pages.keep([told(), told(fingerprint=OTHER, pool="")], NOW + 1)
    counts = [
        [each.repeats for each in record.reader.around(page)] for page in record.reader.pages(PageFilter(), 2)
    ]
    assert counts == [[4], []], "and an alert about no pool has none"


@pytest.fixture
def several(pages: SqlPages, record: Record) -> Record:
    """Seven pages, some of one instant."""
    for n in range(7):
        pool = "vision" if n % 2 else "chat-8b"
        pages.keep([told(fingerprint=f"{n:016x}", starts_at=NOW + n // 3, pool=pool)], NOW + 9)
    pages.keep([ended(5, fingerprint=f"{1:016x}")], NOW + 9)
    return record


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lists_are_newest_first_and_leave_none_out_between_two(several: Record, size: int) -> None:
    whole = [each.id for each in several.reader.pages(PageFilter(), 100)]
    assert [int(each.fingerprint, 16) for each in whole] == [6, 3, 4, 5, 0, 1, 2]
    found: list[PageId] = []
    while rest := several.reader.pages(PageFilter(), size, found[-1] if found else None):
        found += [each.id for each in rest]
    assert found == whole


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        (PageFilter(pool="vision"), [3, 5, 1]),
        (PageFilter(status=PageStatus.RESOLVED), [1]),
        (PageFilter(since=NOW + 2), [6]),
        (PageFilter(cluster="demo", since=NOW + 1, pool="chat-8b"), [6, 4]),
        (PageFilter(cluster="other"), []),
    ],
    ids=str,
)
def test_lists_hold_what_was_asked_for(several: Record, chosen: PageFilter, numbers: list[int]) -> None:
    listed = several.reader.pages(chosen, 100)
    assert [int(each.id.fingerprint, 16) for each in listed] == numbers


def test_an_id_is_read_as_it_is_written_and_nothing_else_is_one(several: Record) -> None:
    for each in several.reader.pages(PageFilter(), 100):
        assert several.reader.page(PageId.parse(str(each.id))) == each
    for wrong in (
        "",
        "demo:weights:42:chat-8b",
        "demo:xyz:1",
        "Demo:1f:1",
        "demo:1f:-1",
        f"demo:1f:{'9' * 17}",
    ):
        with pytest.raises(ValueError, match="one looks like demo:1f0c2d3e4a5b6c7d:1796422200000000"):
            PageId.parse(wrong)


def test_pages_are_still_there_for_a_program_that_starts_later(
    pages: SqlPages, record: Record, url: str
) -> None:
    pages.keep([told(starts_at=NOW + 0.123456)], NOW + 1)
    reader = open_reader(url)
    try:
        (page,) = reader.pages(PageFilter(), 10)
    finally:
        reader.close()
    assert (page.labels, page.runbook) == (told().labels, told().runbook)
    assert page.id.starts_at == NOW + 0.123456
