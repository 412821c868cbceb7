"""Any history of a fleet that lends and returns, through the ledger on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.open import Record
from controlplane.domain.fleet import OFF, Life
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.loans import Entry, balances
from controlplane.domain.policy import PoolKind
from tests.adapters.sql.lent import booking
from tests.databases import Databases, closed, led
from tests.domain.fleets import CHAT, SPARE, Yard, batch_policy, chat_policy, rules, working_buffer


@dataclass(slots=True)
class Lending(Yard):
    """A fleet whose loans stand in a real ledger: what a cycle says is recorded, and read back."""

    ledger: SqlLedger | None = field(default=None)

    def _book(self, entries: Sequence[Entry]) -> None:
        assert self.ledger is not None
        seq = self.ledger.next_seq(CycleKind.CAPACITY)
        self.ledger.record(booking(*entries, seq=seq, at=self.now))
        self.loans = {each.instance: each for each in self.ledger.loans()}
        assert set(self.loans) == self.borrowed()

    def borrowed(self) -> set[InstanceId]:
        """Who is awake on another owner's GPUs, or ordered to be; not offline work in the buffer."""
        nodes = {each.node_id: each.pool for each in self.nodes}
        up = {each.instance_id: each for each in self.instances.values() if each.phase not in OFF}
        where = {name: (each.pool, each.node) for name, each in up.items()}
        coming = (each for each in self.state.moves if each.to is Life.AWAKE and each.instance not in up)
        where |= {each.instance: (each.pool, each.place.node) for each in coming}
        online = {pool for pool, each in self.policies.pools.items() if each.kind is PoolKind.ONLINE}
        return {
            name
            for name, (pool, node) in where.items()
            if nodes[node] != pool and (nodes[node] is not None or pool in online)
        }


Event = Callable[[Lending], None]


def tick(load: float, kind: CycleKind, obeys: bool) -> Event:
    """One cycle at some load, whose orders are carried out or not."""

    def happen(yard: Lending) -> None:
        yard.running[CHAT], yard.deaf = load, not obeys
        yard.run(1, kind)

    return happen


def dies(number: int) -> Event:
    """An instance is gone from one moment to the next, lent or not."""

    def happen(yard: Lending) -> None:
        names = sorted(yard.instances)
        if len(names) > 3:
            yard.instances.pop(names[number % len(names)])

    return happen


def passes(seconds: float) -> Event:
    """Time goes by; also backwards, as when the wall clock is set."""

    def happen(yard: Lending) -> None:
        yard.now += seconds

    return happen


TICKS = st.builds(tick, st.sampled_from([0.0, 5.0, 60.0]), st.sampled_from(CycleKind), st.booleans())
EVENTS = st.one_of(
    TICKS,
    TICKS,
    st.builds(dies, st.integers(0, 20)),
    st.builds(passes, st.sampled_from([-300.0, 10.0, 120.0, 700.0])),
)


@contextmanager
def recorded(databases: Databases) -> Iterator[Record]:
    """A record of its own for one history."""
    with databases() as database:
        record = led(database)
        try:
            yield record
        finally:
            closed(record)


def lending(record: Record, reserve: int, serving: int) -> Lending:
    """A working buffer whose loans are on record."""
    plain = working_buffer(serving)
    yard = Lending(**{each.name: getattr(plain, each.name) for each in fields(plain)}, ledger=record.ledger)
    yard.policies = rules(chat_policy(), batch_policy(), reserve=reserve)
    return yard


CROWD = [tick(60.0, kind, True) for kind in (CycleKind.CAPACITY, *[CycleKind.WEIGHTS] * 4)]
FIRST_SLEEPER = 8
"""Its place among the names, after four guests and four of chat at home."""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(0, 4, [*CROWD, dies(FIRST_SLEEPER), passes(-300.0), tick(60.0, CycleKind.WEIGHTS, True)])
@given(reserve=st.integers(0, 4), serving=st.integers(2, 6), events=st.lists(EVENTS, min_size=1, max_size=12))
def test_after_every_step_the_ledger_sums_to_zero_and_says_who_has_borrowed(
    databases: Databases, reserve: int, serving: int, events: list[Event]
) -> None:
    """That open loans are the borrowed instances, neither more nor fewer, is held at every booking."""
    with recorded(databases) as record:
        yard = lending(record, reserve, serving)
        for event in events:
            event(yard)
            ledger = record.reader.balance()
            assert (sum(ledger.accounts.values()), ledger.broken) == (0, ())
            owned, held = balances(yard.nodes, ()), balances(yard.nodes, yard.loans.values())
            assert sum(held.values()) == 16
            moved = {pool: held[pool] - owned.get(pool, 0) for pool in held}
            assert {pool: gpus for pool, gpus in ledger.accounts.items() if gpus} == {
                pool: gpus for pool, gpus in moved.items() if gpus
            }


def test_a_surge_lends_and_its_end_returns_and_the_ledger_shows_both(databases: Databases) -> None:
    """A history of which it is known that it lends: the property above is not held by idle fleets alone."""
    with recorded(databases) as record:
        yard = lending(record, reserve=0, serving=4)
        tick(60.0, CycleKind.CAPACITY, True)(yard)
        lent = {each.node for each in yard.loans.values()}
        assert lent == {SPARE}
        assert record.reader.balance().accounts[CHAT] == len(yard.loans) > 0
        for _ in range(40):
            tick(2.0, CycleKind.CAPACITY, True)(yard)
            passes(60.0)(yard)
        assert yard.loans == {}
        assert record.reader.balance().accounts == {"buffer": 0, CHAT: 0}
