"""PostgreSQL: connections that wait for nothing without end."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import NoSuchModuleError

from controlplane.ports import InvalidConfig

DRIVER = "postgresql+psycopg"
NOT_INSTALLED = "database: the PostgreSQL driver is not installed: pip install 'trimtab[postgresql]'"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a database is waited for. Milliseconds by its own clock: `statement_ms` for one statement,
    `lock_ms` for another one's lock, `idle_ms` for us inside a transaction, before it lets our locks go.
    Seconds by ours: `connect_s` (two at least) for a connection, `answer_s` for any answer."""

    statement_ms: int = 5_000
    lock_ms: int = 2_000
    idle_ms: int = 10_000
    connect_s: int = 3
    answer_s: float = 8.0


def postgresql(url: URL, patience: Patience) -> Engine:
    """An engine whose commits wait for the disk, by one driver, whichever the URL names. Raises
    InvalidConfig where it is not installed."""
    chosen = url.set(drivername=DRIVER)
    try:
        engine = create_engine(chosen, pool_pre_ping=True, connect_args=_arguments(patience))
        _listen(engine, patience.answer_s)
    except (ImportError, NoSuchModuleError) as error:
        raise InvalidConfig([NOT_INSTALLED]) from error
    return engine


def _arguments(patience: Patience) -> dict[str, str | int]:
    """A network that swallows everything is found out by the kernel: else it takes a quarter of an hour."""
    settings = {
        "statement_timeout": patience.statement_ms,
        "lock_timeout": patience.lock_ms,
        "idle_in_transaction_session_timeout": patience.idle_ms,
        "synchronous_commit": "on",
    }
    return {
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "application_name": "trimtab",
        "connect_timeout": patience.connect_s,
        "tcp_user_timeout": int(patience.answer_s * 1000),
        "keepalives_idle": 2,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    }


def unhurried(connection: Any) -> None:
    """Let a connection of SQLAlchemy's wait for answers as long as they take; it is closed after use."""
    connection.detach()
    connection.connection.dbapi_connection.answer_s = float("inf")


def _listen(engine: Engine, answer_s: float) -> None:
    """A server that stands still obeys no timeout of its own: then the connection is given up."""
    import psycopg  # noqa: PLC0415 - an extra, absent where SQLite does

    class Bounded(psycopg.Connection[Any]):
        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            within = getattr(self, "answer_s", answer_s)
            try:
                return super().wait(_until(gen, within), *args, **kwargs)
            except TimeoutError:
                self.close()
                raise psycopg.OperationalError(f"no answer within {within:g} s") from None

    @event.listens_for(engine, "checkin")
    def _given_back(connection: Any, _record: Any) -> None:
        """SQLAlchemy ends a reading by asking for READ WRITE from then on, whatever the server is set to."""
        if connection is not None:
            connection.read_only = None

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
        return Bounded.connect(*arguments, **named)


def _until(steps: Generator[Any, Any, Any], within_s: float) -> Generator[Any, Any, Any]:
    """The same steps, of which none is taken later than that. Raises TimeoutError. The driver takes one
    at least every tenth of a second, whether something came or not."""
    deadline = time.monotonic() + within_s
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if time.monotonic() > deadline:
                raise TimeoutError
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value
