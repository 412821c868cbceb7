"""Connections: durable on SQLite, bounded on PostgreSQL, and no library error across the port.

A write takes SQLite's write lock at once, so that it never fails half way because a reader became a
writer, and its commit waits for the disk: record before act must survive a power cut. A read
sees one snapshot and can change nothing.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from controlplane.adapters.sql.codec import Damaged
from controlplane.adapters.sql.postgresql import Patience, postgresql
from controlplane.ports import Conflict, InvalidConfig, Unavailable

BUSY_S = 2.0
"""How long a writer waits for another one, seconds."""

_TURN_S = 0.01

PATIENCE = Patience()
"""How long PostgreSQL is waited for."""


class ReadSession(Session):
    """One snapshot, for reading only: the database itself refuses a change."""


class WriteSession(Session):
    """One short transaction, committed at the end."""


def open_engine(url: str, *, create: bool = True, patience: Patience = PATIENCE) -> Engine:
    """An engine for SQLite or PostgreSQL. Raises InvalidConfig for a URL that is neither.

    `create`: an SQLite file that does not exist is made; else it is an error. `patience`: PostgreSQL's.
    """
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite":
        return postgresql(parsed, patience)
    file = file_of(url)
    if file is not None and create:
        _make(file.parent)
    if file is not None and not _is_there(file) and not create:
        raise InvalidConfig(
            [f"database: {file} does not exist; `trimtab run` or `trimtab demo --report FILE` writes one"]
        )
    return _sqlite(parsed)


def _is_there(file: Path) -> bool:
    """Whether there is a file. Raises InvalidConfig where there is something else, or nobody can tell."""
    try:
        if stat.S_ISREG(file.stat().st_mode):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InvalidConfig([f"database: {file} cannot be used: {error.strerror}"]) from error
    raise InvalidConfig([f"database: {file} is no plain file"])


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig([f"database: {folder} cannot be made: {error.strerror}"]) from error


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


def place(engine: Engine) -> str:
    """Where a database is, fit for people and logs: its file, or its URL without password and options."""
    if engine.dialect.name == "sqlite":
        return engine.url.database or ":memory:"
    return engine.url.set(query={}).render_as_string(hide_password=True)


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # The driver's own transactions begin late and end early; ours are explicit.
        connection.isolation_level = None
        _journal_ahead(connection)
        for pragma in (
            "synchronous=FULL",
            "foreign_keys=ON",
            "recursive_triggers=ON",  # else INSERT OR REPLACE deletes rows that no trigger sees
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # IMMEDIATE: two writers meet at the start, where one can wait, and not at the commit.
        options = connection.get_execution_options()
        write, keys = options.get("write", False), options.get("foreign_keys", True)
        connection.exec_driver_sql(f"PRAGMA query_only={'OFF' if write else 'ON'}")
        connection.exec_driver_sql(f"PRAGMA foreign_keys={'ON' if keys else 'OFF'}")
        connection.exec_driver_sql(f"PRAGMA busy_timeout={int(options.get('busy_s', BUSY_S) * 1000)}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _journal_ahead(connection: sqlite3.Connection) -> None:
    """WAL, which only a new file is not in yet. For this one change SQLite does not wait for its turn as
    for all others: of several who open a new file at once all but one are told that it is locked."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_TURN_S)
        else:
            return


@contextmanager
def reading(engine: Engine) -> Iterator[ReadSession]:
    """A session that changes nothing. Raises Unavailable."""
    with translated(engine), ReadSession(_snapshots(engine), autoflush=False) as session:
        yield session


def _snapshots(engine: Engine) -> Engine:
    """The same engine, in whose transactions every statement sees the same rows. SQLite's always do."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")


@contextmanager
def writing(engine: Engine) -> Iterator[WriteSession]:
    """A session committed at the end, or not at all. Raises Unavailable, or Conflict for a row that
    contradicts what is there."""
    writer = engine.execution_options(write=True)
    with translated(engine), WriteSession(writer, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """The library's errors as the port's; statements and parameters stay out of the text.

    Raises Unavailable, Conflict, or Damaged for a word that this version does not know; each names the
    database.
    """
    where = place(engine)
    try:
        yield
    except IntegrityError as error:
        raise Conflict(f"the database {where} refused it: {_words(error.orig)}") from error
    except DBAPIError as error:
        raise Unavailable(f"the database {where} did not do it: {_words(error.orig)}") from error
    except SQLAlchemyError as error:
        raise Unavailable(f"the database {where} did not do it: {type(error).__name__}") from error
    except LookupError as error:
        if type(error) is not LookupError:  # an enum's column raises just this; a KeyError is a defect
            raise
        raise Damaged(
            f"a row of {where} holds a word that this version does not know: {_words(error)}"
        ) from error
    except OverflowError as error:  # from the driver, which tells of it in no error of its own
        raise Unavailable(f"the database {where} did not do it: a number is too large") from error


def _words(error: BaseException | None) -> str:
    """A driver's own words, in one line: some end in a line break, others run over several. Of what
    PostgreSQL says the first part alone: the details repeat statements and values."""
    said = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join(str(said or error).split())
