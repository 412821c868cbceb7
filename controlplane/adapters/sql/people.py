"""What people do to the control plane: each act changes a row and leaves one that nobody can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, insert, select, update

from controlplane.adapters.sql.engine import WriteSession, open_engine, reading, writing
from controlplane.adapters.sql.migrate import require_head
from controlplane.adapters.sql.reader import Filter, Reader
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import ActRow, HoldRow
from controlplane.domain.ids import InstanceId, PoolName, Source
from controlplane.domain.observation import Hold
from controlplane.ports import Conflict, InvalidConfig

FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Said:
    """Who did it, why, and when (epoch seconds)."""

    author: str
    reason: str
    at: float


def place_hold(engine: Engine, run: Run, hold_id: str, hold: Hold) -> None:
    """Put a hold or a pin in force until it ends. Raises Conflict for a used id."""
    with writing(engine) as session:
        session.execute(
            insert(HoldRow).values(
                cluster=run.cluster,
                hold_id=hold_id,
                effect=hold.effect,
                pool=hold.pool or "",
                instance=hold.instance,
                level=hold.level,
                author=hold.author,
                reason=hold.reason,
                since=hold.since,
                until=hold.until,
            )
        )
        said = Said(hold.author, hold.reason, hold.since)
        _act(session, run, f"{hold_id}:placed", said, (hold.effect, _subject(hold)))


def lift_hold(engine: Engine, run: Run, hold_id: str, said: Said) -> None:
    """End a hold before its time. Raises Conflict where it is not in force."""
    with writing(engine) as session:
        lifted = session.execute(
            update(HoldRow)
            .where(HoldRow.cluster == run.cluster, HoldRow.hold_id == hold_id, HoldRow.lifted_at.is_(None))
            .values(lifted_at=said.at)
            .returning(HoldRow.pool, HoldRow.instance, HoldRow.level)
        ).all()
        if not lifted:
            raise Conflict(f"there is no hold {hold_id} in force")
        pool, instance, level = lifted[0]
        _act(session, run, f"{hold_id}:lifted", said, ("lift", _of(pool, instance, level)))


def _subject(hold: Hold) -> str:
    return _of(hold.pool or "", hold.instance, hold.level)


def _of(pool: str, instance: str | None, level: int | None) -> str:
    """What was said of what: `chat-8b`, `chat-8b 14`, `demo/chat-8b-03@s9k2x1 50`, `fleet`."""
    return " ".join((instance or pool or FLEET, *([] if level is None else [str(level)])))


def _act(session: WriteSession, run: Run, act_id: str, said: Said, done: tuple[str, str]) -> None:
    act, subject = done
    session.execute(
        insert(ActRow).values(
            cluster=run.cluster,
            act_id=act_id,
            at=said.at,
            source=run.source,
            run_id=run.run_id,
            author=said.author,
            act=act,
            subject=subject,
            reason=said.reason,
        )
    )


@dataclass(frozen=True, slots=True)
class Word:
    """A hold or a pin on record. `lifted_at` (epoch seconds): ended before its time; else None."""

    hold_id: str
    cluster: str
    hold: Hold
    lifted_at: float | None

    def in_force(self, now: float) -> bool:
        """Whether the next observation carries it."""
        return self.lifted_at is None and (self.hold.until is None or now < self.hold.until)


@dataclass(frozen=True, slots=True)
class Known:
    """What the newest cycle knew, so that a slip of the pen is told at once: pools and instances."""

    run: Run
    pools: frozenset[PoolName]
    instances: Mapping[InstanceId, PoolName]


class People:
    """A second, short writer beside the controller. Raises Unavailable or Conflict."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def known(self) -> Known:
        """What the newest cycle knew. Raises InvalidConfig where no controller has run on this record."""
        reader = Reader(self._engine)
        newest = reader.decisions(Filter(), 1)
        stored = reader.cycle(newest[0].id.cycle) if newest else None
        if stored is None:
            raise InvalidConfig(["no controller has run on this record yet: there is nothing to hold"])
        cluster, run_id = stored.cycle.cluster, stored.run_id
        source = next(Source(each) for _, name, each, _ in reader.runs() if name == run_id)
        instances = {each.instance_id: each.pool for each in stored.frame.observation.instances}
        return Known(Run(cluster, run_id, source), frozenset(stored.frame.policies.pools), instances)

    def place(self, run: Run, hold_id: str, hold: Hold) -> None:
        """Put a hold or a pin in force."""
        place_hold(self._engine, run, hold_id, hold)

    def lift(self, run: Run, hold_id: str, said: Said) -> None:
        """End one before its time."""
        lift_hold(self._engine, run, hold_id, said)

    def words(self, limit: int) -> Sequence[Word]:
        """All holds and pins, the newest first."""
        query = select(HoldRow).order_by(HoldRow.since.desc(), HoldRow.hold_id).limit(limit)
        with reading(self._engine) as session:
            return [
                Word(row.hold_id, row.cluster, hold_of(row), row.lifted_at) for row in session.scalars(query)
            ]


def open_people(url: str) -> People:
    """The people's side of an existing record. Raises InvalidConfig or Unavailable."""
    engine = open_engine(url, create=False)
    try:
        require_head(engine)
    except Exception:
        engine.dispose()
        raise
    return People(engine)


def hold_of(row: HoldRow) -> Hold:
    """A row as the domain's value."""
    pool = PoolName(row.pool) if row.pool else None
    instance = InstanceId(row.instance) if row.instance else None
    return Hold(pool, row.author, row.reason, row.since, row.until, row.effect, instance, row.level)
