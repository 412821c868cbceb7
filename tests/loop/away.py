"""Ways in which a database is away, each for the length of a `with` block."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy import Engine, event, text

from controlplane.adapters.sql.engine import translated
from controlplane.ports import Unavailable
from tests.databases import Database
from tests.postgres import Postgres

SOCKET = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class Site:
    """What can be broken. `engine`: the controller's own connections."""

    database: Database
    engine: Engine
    server: Postgres | None = None

    @property
    def postgres(self) -> Postgres:
        """Raises where the database is of the other kind."""
        assert self.server is not None
        return self.server


Fault = Callable[[Site], AbstractContextManager[None]]


def cut_off(site: Site) -> None:
    """Everybody else's connection to the database ends, as when a server fails over."""
    site.database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@contextmanager
def stopped(site: Site) -> Iterator[None]:
    """There is no server."""
    site.postgres.stop()
    yield
    site.postgres.start()


@contextmanager
def refused(site: Site) -> Iterator[None]:
    """The server is there, and lets nobody in."""
    (name,) = site.database.sql("SELECT current_database()")[0]
    site.postgres.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    site.postgres.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
    yield
    site.postgres.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@contextmanager
def standing_still(site: Site) -> Iterator[None]:
    """The server's machine answers, and the server does not: no timeout of its own ends anything."""
    processes = site.postgres.processes()
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def _whenever(site: Site, table: str, then: str) -> Iterator[None]:
    """Something happens in the server, in the middle of the transaction that records a cycle."""
    site.database.sql(
        f"CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {then}; RETURN NEW; END $$"
    )
    site.database.sql(f"CREATE TRIGGER fault BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fault()")
    yield
    site.database.sql("DROP FUNCTION fault() CASCADE")


def cut_in_mid_transaction(site: Site) -> AbstractContextManager[None]:
    """The connection is lost between two statements."""
    return _whenever(site, "decisions", "PERFORM pg_terminate_backend(pg_backend_pid())")


def slow(site: Site) -> AbstractContextManager[None]:
    """A statement takes longer than we wait."""
    return _whenever(site, "decisions", "PERFORM pg_sleep(60)")


@contextmanager
def read_only(site: Site) -> Iterator[None]:
    """As on a standby, or while somebody moves it."""
    (name,) = site.database.sql("SELECT current_database()")[0]
    site.postgres.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    cut_off(site)
    yield
    site.postgres.run(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    cut_off(site)


@contextmanager
def locked(site: Site) -> Iterator[None]:
    """Another program holds what we need, for longer than we wait."""
    if site.database.file is None:
        with psycopg.connect(site.database.url) as other:
            other.execute("LOCK TABLE sequences IN ACCESS EXCLUSIVE MODE")
            yield
            other.rollback()
        return
    with closing(sqlite3.connect(site.database.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(site: Site) -> Iterator[None]:
    """There is no room for another page, nor in the pages that are there."""
    with site.engine.execution_options(write=True).connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    for size in (2000, 200, 20):
        with suppress(Unavailable):
            while True:
                _fill(site.engine, size)
    yield
    with site.engine.execution_options(write=True).connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")


def _fill(engine: Engine, size: int) -> None:
    """One more row where cycles keep what they saw, of a cycle that never was."""
    row = "SELECT 'filler', 'weights', 1 + count(*), 1, zeroblob(:n), '', '', '' FROM frames"
    with engine.execution_options(write=True, foreign_keys=False).connect() as connection, translated(engine):
        connection.execute(text(f"INSERT INTO frames {row}"), {"n": size})
        connection.commit()


@contextmanager
def query_only(site: Site) -> Iterator[None]:
    """The file can be read and not written, as where a disk went wrong."""

    def begin(connection: object) -> None:
        connection.exec_driver_sql("PRAGMA query_only=ON")  # type: ignore[attr-defined]

    event.listen(site.engine, "begin", begin)
    yield
    event.remove(site.engine, "begin", begin)


class Proxy:
    """Between us and the server. Armed, it hands one COMMIT on, and its answer to nobody."""

    def __init__(self, folder: Path, behind: Path) -> None:
        self._behind = behind
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / SOCKET))
        self._listening.listen()
        self._armed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self) -> None:
        """From now on."""
        self._armed.set()

    def close(self) -> None:
        """Nobody new comes in."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._behind / SOCKET))
                for source, sink, watched in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, watched), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        """One direction. The client of an armed connection is gone before its COMMIT arrives."""
        with source, suppress(OSError):
            while data := source.recv(65536):
                if watched and self._armed.is_set() and b"COMMIT\0" in data:
                    self._armed.clear()
                    source.shutdown(socket.SHUT_RDWR)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
