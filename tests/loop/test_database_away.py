"""The database away: nothing is sent, gateways keep their weights, and the loop comes back by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.adapters.sql import engine as engines
from controlplane.adapters.sql.engine import open_engine
from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.open import Record, begin_record
from controlplane.adapters.sql.postgresql import Patience
from controlplane.adapters.sql.scope import Run
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import ActionId, CycleKind, Source
from controlplane.domain.plan import Action, ActionState
from controlplane.loop.cycle import Report
from controlplane.ports import CycleRecord
from tests.databases import (
    Database,
    HeldLease,
    database,
    databases,
    kind,
    migrated,
    only_postgresql,
    only_sqlite,
)
from tests.loop import away
from tests.loop.away import Fault, Proxy, Site
from tests.loop.world import World
from tests.postgres import Postgres
from tests.support import eventually

__all__ = ["database", "databases", "kind", "migrated"]

HURRIED = Patience(statement_ms=400, lock_ms=200, connect_s=2, answer_s=1.0)
"""Long enough for a busy machine, and short enough for a test."""


def begun(url: str) -> Record:
    """A record led by this process, that waits for little."""
    return begin_record(open_engine(url, patience=HURRIED), HeldLease(), Run("demo", "test", Source.LIVE))


@pytest.fixture
def record(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    monkeypatch.setattr(engines, "BUSY_S", 0.05)
    opened = begun(database.url)
    yield opened
    opened.close()


@pytest.fixture
def site(database: Database, record: Record, kind: str, request: pytest.FixtureRequest) -> Site:
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None
    return Site(database, record.engine, server)


class Watched:
    """A fleet whose loop writes a real record, and in which every cycle has something to put right."""

    def __init__(self, record: Record) -> None:
        self.world = World()
        self.record = record
        self.numbers: list[int] = []
        self.world.loop = self.world.restarted(record.ledger)
        self._wrong = 40

    def cycle(self, kind: CycleKind = CycleKind.WEIGHTS) -> Report:
        """A cycle after somebody else's hand was at a weight."""
        self._wrong += 1
        self.world.meddle(1, weight=self._wrong)
        report = self.world.cycle(kind)
        if report.cycle is not None:
            self.numbers.append(report.cycle.seq)
        return report

    def acts(self) -> Report:
        """It does, and says that it did."""
        sent = len(self.world.gateway.sent)
        report = self.cycle()
        assert report.failure == ""
        assert {state for state, _ in report.outcomes.values()} == {ActionState.APPLIED}
        assert len(self.world.gateway.sent) > sent
        assert self.world.server(1).weight != self._wrong
        return report

    def stands_still(self, kind: CycleKind = CycleKind.WEIGHTS) -> str:
        """Nothing is sent; answers why."""
        sent, orders = list(self.world.gateway.sent), list(self.world.orchestrator.orders)
        report = self.cycle(kind)
        assert (report.plan, report.outcomes) == (None, {})
        assert (self.world.gateway.sent, self.world.orchestrator.orders) == (sent, orders)
        assert "apply edge" not in self.world.journal
        assert self.world.server(1).weight == self._wrong, "the gateway keeps what it has"
        return report.failure


@pytest.fixture
def watched(record: Record) -> Watched:
    return Watched(record)


def assert_whole(database: Database, watched: Watched) -> None:
    """No number came twice, and no action is left open."""
    assert watched.numbers == sorted(set(watched.numbers))
    assert database.sql("SELECT count(*) FROM actions WHERE state IN ('applying', 'unknown')") == [(0,)]


def assert_stands_still_until_it_is_back(site: Site, watched: Watched, fault: Fault, words: str) -> None:
    watched.acts()
    with fault(site):
        for kind in (CycleKind.WEIGHTS, CycleKind.CAPACITY, CycleKind.WEIGHTS):
            said = watched.stands_still(kind)
            assert f"the database {place(site)} did not do it" in said
            assert words in said
            assert "INSERT" not in said
    watched.acts()
    watched.acts()
    assert_whole(site.database, watched)


def place(site: Site) -> str:
    """As errors name it."""
    return str(site.database.file or site.engine.url.set(query={}))


@only_postgresql
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (away.stopped, "connection"),
        (away.refused, "is not currently accepting connections"),
        (away.standing_still, "timeout"),
        (away.cut_in_mid_transaction, "terminating connection"),
        (away.slow, "statement timeout"),
        (away.locked, "lock timeout"),
        (away.read_only, "read-only transaction"),
    ],
)
def test_while_postgresql_is_away_nothing_is_sent_and_the_next_cycle_after_it_acts(
    site: Site, watched: Watched, fault: Fault, words: str
) -> None:
    assert_stands_still_until_it_is_back(site, watched, fault, words)


@only_sqlite
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (away.locked, "database is locked"),
        (away.full, "full"),
        (away.query_only, "readonly database"),
    ],
)
def test_while_an_sqlite_file_is_away_nothing_is_sent_and_the_next_cycle_after_it_acts(
    site: Site, watched: Watched, fault: Fault, words: str
) -> None:
    """B-149: a writer that stays longer than we wait costs a cycle and nothing else."""
    assert_stands_still_until_it_is_back(site, watched, fault, words)


@only_postgresql
@pytest.mark.parametrize("how", ["restarted", "cut off"])
def test_postgresql_restarted_between_two_cycles_costs_none(site: Site, watched: Watched, how: str) -> None:
    """B-151: a connection that died in the pool is found out before it is used."""
    watched.acts()
    if how == "restarted":
        site.postgres.stop()
        site.postgres.start()
    else:
        away.cut_off(site)
    watched.acts()
    assert_whole(site.database, watched)


class Unsettled:
    """A gateway after whose effects the database is gone."""

    def __init__(self, world: World, then: Callable[[], object]) -> None:
        self._inner, self._then = world.gateway, then
        self.name = "edge"

    def read(self) -> GatewayView:
        return self._inner.read()

    def apply(self, actions: Sequence[tuple[ActionId, Action]]) -> Mapping[ActionId, tuple[ActionState, str]]:
        answered = self._inner.apply(actions)
        self._then()
        return answered


@only_postgresql
def test_on_postgresql_what_was_sent_and_could_not_be_written_down_is_settled_by_looking(
    site: Site, watched: Watched
) -> None:
    watched.acts()
    fault = away.stopped(site)
    watched.world.loop = watched.world.restarted(
        watched.record.ledger, Unsettled(watched.world, fault.__enter__)
    )
    report = watched.cycle()
    assert report.failure.startswith("outcomes could not be recorded: the database")
    assert {state for state, _ in report.outcomes.values()} == {ActionState.APPLIED}
    assert "connection" in watched.stands_still()
    fault.__exit__(None, None, None)
    (id_,) = report.outcomes
    assert [each for each, _ in watched.record.ledger.unknown_actions()] == [id_]
    watched.world.loop = watched.world.restarted(watched.record.ledger)
    watched.acts()
    (done,) = watched.record.reader.actions(id_.decision)
    assert done.detail.endswith("afterwards")
    assert_whole(site.database, watched)


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[tuple[Proxy, Path]]:
    with TemporaryDirectory(prefix="trimtab-px-") as folder:
        opened = Proxy(Path(folder), postgres.folder)
        yield opened, Path(folder)
        opened.close()


class LosingOneCommit(SqlLedger):
    """That of the next cycle."""

    def __init__(self, record: Record, between: Proxy) -> None:
        super().__init__(record.engine, record.run)
        self._arm: Callable[[], None] | None = between.arm

    def record(self, cycle: CycleRecord) -> Sequence[tuple[ActionId, Action]]:
        if self._arm is not None:
            self._arm()
            self._arm = None
        return super().record(cycle)


@only_postgresql
def test_on_postgresql_a_commit_whose_answer_is_lost_sends_nothing_and_is_remembered(
    site: Site, proxy: tuple[Proxy, Path]
) -> None:
    """The cycle stands in the record, nobody acted upon it, and the next one goes on from its state."""
    between, folder = proxy
    record = begun(site.database.url.split("?")[0] + f"?host={folder}")
    with closing(record):
        watched = Watched(record)
        watched.acts()
        watched.world.loop = watched.world.restarted(LosingOneCommit(record, between))
        before = site.database.rows("cycles")
        assert "the database" in watched.stands_still()
        eventually(lambda: site.database.rows("cycles") == before + 1, 20.0, because="it did not arrive")
        (lost, left) = record.reader.cycle_ids()[-1], record.ledger.unknown_actions()
        assert left
        acted = watched.acts()
        assert acted.cycle is not None
        first, second = record.reader.cycle(lost), record.reader.cycle(acted.cycle)
        assert first is not None
        assert second is not None
        assert second.frame.state == first.next_state
        states = {each.id: each.state for each in record.reader.actions(left[0][0].decision)}
        assert states == {id_: ActionState.FAILED for id_, _ in left}
        assert_whole(site.database, watched)
