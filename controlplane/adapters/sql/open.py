"""Opening the record: to write it as a controller, or only to read it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, insert

from controlplane import __version__
from controlplane.adapters.sql.engine import WriteSession, file_of, open_engine, writing
from controlplane.adapters.sql.lease import FileLease
from controlplane.adapters.sql.ledger import LEADER, SqlLedger
from controlplane.adapters.sql.migrate import migrate, require_head
from controlplane.adapters.sql.reader import Reader
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import LeaseRow, RunRow
from controlplane.domain.ids import Source
from controlplane.ports import InvalidConfig, Lease, Unavailable


@dataclass(frozen=True, slots=True)
class Record:
    """An open record: the ledger and lease of one run, and a reader."""

    engine: Engine
    run: Run
    ledger: SqlLedger
    lease: Lease
    reader: Reader

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open_record(
    url: str, cluster: str, source: str = "live", run_id: str | None = None, code_version: str = __version__
) -> Record:
    """Lead, migrate, and begin a run. Raises InvalidConfig or Unavailable.

    The lease comes first: a second controller must not migrate under the first one's feet.
    """
    chosen, file = _source(source), _file(url)
    engine = open_engine(url)
    lease = FileLease(file)
    if not lease.acquire():
        engine.dispose()
        raise Unavailable(f"another controller leads {file} (process {lease.holder()}); stop it first")
    return begin_record(engine, lease, Run(cluster, run_id or _run_id(), chosen), code_version)


def begin_record(engine: Engine, lease: Lease, run: Run, code_version: str = __version__) -> Record:
    """Migrate, and begin `run`, under a lease that is held already. The run's own token is the database's
    to give. Raises InvalidConfig, Unavailable or Conflict; then lease and connections are given back."""
    try:
        migrate(engine)
        begun = _begin(engine, run, code_version)
    except Exception:
        lease.release()
        engine.dispose()
        raise
    return Record(engine, begun, SqlLedger(engine, begun), lease, Reader(engine))


def open_reader(url: str) -> Reader:
    """Read an existing record. Raises InvalidConfig where there is none: reading creates nothing."""
    engine = open_engine(url, create=False)
    try:
        require_head(engine)
    except Exception:
        engine.dispose()
        raise
    return Reader(engine)


def _source(word: str) -> Source:
    try:
        return Source(word)
    except ValueError:
        raise InvalidConfig([f"source: {word!r}; allowed: {', '.join(Source)}"]) from None


def _file(url: str) -> Path:
    file = file_of(url)
    if file is None:
        raise InvalidConfig(
            ["database: a controller leads by a lock beside an SQLite file, such as sqlite:///var/trimtab.db"]
        )
    return file


def _run_id() -> str:
    """Two runs can't share an id: a process leads once at an instant."""
    stamp = time.strftime("%Y%m%dt%H%M%S", time.gmtime())
    return f"{stamp}-{time.time_ns() // 1000 % 1_000_000:06d}-{os.getpid()}"


def _begin(engine: Engine, run: Run, code_version: str) -> Run:
    """Record the run, and take the lease's next token, with which every cycle is stamped."""
    with writing(engine) as session:
        if session.get(RunRow, (run.cluster, run.run_id)) is None:
            values = {"source": run.source, "started_at": time.time(), "code_version": code_version}
            session.execute(insert(RunRow).values(cluster=run.cluster, run_id=run.run_id, **values))
        return Run(run.cluster, run.run_id, run.source, _next_token(session, run.cluster))


def _next_token(session: WriteSession, cluster: str) -> int:
    row = session.get(LeaseRow, (cluster, LEADER), with_for_update=True)
    if row is None:
        row = LeaseRow(cluster=cluster, name=LEADER, holder="", token=0)
        session.add(row)
    row.holder, row.token = f"{socket.gethostname()}:{os.getpid()}", row.token + 1
    return row.token
