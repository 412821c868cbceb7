"""Connections: durable on SQLite, bounded on PostgreSQL, and no library error across the port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session

from controlplane.ports import InvalidConfig, Unavailable

BUSY_S = 2.0
"""How long a writer waits for another one, seconds."""

STATEMENT_MS = 5_000
LOCK_MS = 2_000


class ReadSession(Session):
    """For reading only; its transaction is rolled back."""


class WriteSession(Session):
    """One short transaction, committed at the end."""


def open_engine(url: str) -> Engine:
    """An engine for SQLite or PostgreSQL. Raises InvalidConfig for a URL that is neither."""
    parsed = parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    return _postgresql(parsed)


def parse(url: str) -> URL:
    """The URL, taken apart. Raises InvalidConfig, without repeating a password."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidConfig(["database: not a URL such as sqlite:///var/trimtab.db"]) from None
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise InvalidConfig(
            [f"database: {parsed.get_backend_name()} is not supported; sqlite and postgresql are"]
        )
    return parsed


def file_of(url: str) -> Path | None:
    """The file of an SQLite URL; None where there is none."""
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)


def _sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidConfig([f"database: {folder} cannot be made: {error.strerror}"]) from error
    engine = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # The driver's own transactions begin late and end early; ours are explicit.
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={int(BUSY_S * 1000)}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # IMMEDIATE: two writers meet at the start, where one can wait, and not at the commit.
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    options = f"-c statement_timeout={STATEMENT_MS} -c lock_timeout={LOCK_MS} -c synchronous_commit=on"
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"options": options, "connect_timeout": 3})
    except (ImportError, NoSuchModuleError) as error:
        raise InvalidConfig(["database: the PostgreSQL driver is not installed"]) from error


@contextmanager
def reading(engine: Engine) -> Iterator[ReadSession]:
    """A session that changes nothing. Raises Unavailable."""
    with translated(), ReadSession(engine, autoflush=False) as session:
        yield session


@contextmanager
def writing(engine: Engine) -> Iterator[WriteSession]:
    """A session committed at the end, or not at all. Raises Unavailable."""
    writer = engine.execution_options(write=True)
    with translated(), WriteSession(writer, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def translated() -> Iterator[None]:
    """The library's errors as the port's. Raises Unavailable."""
    try:
        yield
    except DBAPIError as error:
        raise Unavailable(f"the database did not do it: {error.orig}") from error
    except SQLAlchemyError as error:
        raise Unavailable(f"the database did not do it: {type(error).__name__}") from error
    except OverflowError as error:  # from the driver, which tells of it in no error of its own
        raise Unavailable("the database did not do it: a number is too large") from error
