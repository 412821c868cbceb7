"""Opening the record: to write it as a controller, or only to read it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sqlalchemy import Engine

from controlplane import __version__
from controlplane.adapters.sql.codec import micros
from controlplane.adapters.sql.engine import file_of, open_engine, writing
from controlplane.adapters.sql.lease import FileLease, OpenLease
from controlplane.adapters.sql.ledger import SqlLedger
from controlplane.adapters.sql.migrate import migrate, require_head
from controlplane.adapters.sql.reader import Reader
from controlplane.adapters.sql.tables import SOURCES, RunRow
from controlplane.ports import InvalidConfig, Unavailable


@dataclass(frozen=True, slots=True)
class Record:
    """An open record: the ledger and lease of one run, and a reader."""

    engine: Engine
    run_id: str
    ledger: SqlLedger
    lease: FileLease | OpenLease
    reader: Reader

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open_record(url: str, cluster: str, source: str = "live", run_id: str | None = None) -> Record:
    """Lead, migrate, and begin a run. Raises InvalidConfig or Unavailable.

    The lease comes first: a second controller must not migrate under the first one's feet.
    """
    if source not in SOURCES:
        raise InvalidConfig([f"source: {source!r}; allowed: {', '.join(SOURCES)}"])
    engine = open_engine(url)
    file = file_of(url)
    lease = OpenLease() if file is None else FileLease(file)
    if not lease.acquire():
        engine.dispose()
        raise Unavailable(f"another controller leads {file} (process {lease.holder()}); stop it first")
    try:
        migrate(engine)
        run = run_id or _run_id()
        _begin(engine, cluster, run, source)
    except Exception:
        lease.release()
        engine.dispose()
        raise
    return Record(engine, run, SqlLedger(engine, cluster, run), lease, Reader(engine))


def open_reader(url: str) -> Reader:
    """Read an existing record. Raises InvalidConfig where there is none: reading creates nothing."""
    file = file_of(url)
    if file is not None and not file.is_file():
        raise InvalidConfig(
            [f"database: {file} does not exist; `trimtab run` or `trimtab demo --report FILE` writes one"]
        )
    engine = open_engine(url)
    require_head(engine)
    return Reader(engine)


def _run_id() -> str:
    stamp = time.strftime("%Y%m%dt%H%M%S", time.gmtime())
    return f"{stamp}-{os.getpid()}"


def _begin(engine: Engine, cluster: str, run_id: str, source: str) -> None:
    with writing(engine) as session:
        if session.get(RunRow, (cluster, run_id)) is None:
            started = micros(time.time())
            session.add(
                RunRow(
                    cluster=cluster,
                    run_id=run_id,
                    source=source,
                    started_at=started,
                    code_version=__version__,
                )
            )
