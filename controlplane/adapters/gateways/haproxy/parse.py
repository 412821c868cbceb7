"""HAProxy's own tables, read. Pure; a table that is not as expected raises Unavailable with the value."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from controlplane.ports import Unavailable

UNLIMITED = 2**32 - 1
"""The limit of a server that has none, as a number (HAProxy shows an empty field)."""

_MAINTENANCE = 0x01 | 0x02 | 0x20 | 0x40  # forced, inherited, by resolver, by host name
# 0x04 only remembers that the file said `disabled`; it stays after `ready`.
_DRAIN = 0x08 | 0x10  # forced, inherited

QUESTIONS = ("show info", "show servers state", "show stat -1 6 -1")
"""What `tables` needs, in this order: 6 = backend and server rows."""


class Operation(IntEnum):
    """`srv_op_state`: what HAProxy's own checks say."""

    STOPPED = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


@dataclass(frozen=True, slots=True)
class Process:
    """One HAProxy process. `started_at` epoch seconds where it says so (2.8 on), else None.
    `dropped_logs`: lines that it could not hand over; what a network lost it does not know."""

    pid: int
    uptime_s: int
    started_at: int | None
    dropped_logs: int = 0


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server as it is now. `address` is `ip:port`; `closed`: drained or in maintenance."""

    pool: str
    name: str
    address: str
    closed: bool
    down: bool
    weight: int
    limit: int
    in_flight: int
    queue: int
    sessions_total: int


@dataclass(frozen=True, slots=True)
class BackendRow:
    """One backend as it is now, without its servers. `current`: requests that have not ended, waiting
    ones included."""

    pool: str
    queue: int
    current: int
    arrivals_total: int
    denied_total: int
    unserved_total: int


@dataclass(frozen=True, slots=True)
class Tables:
    """One reading of a HAProxy: the process, its backends and their servers by pool and name."""

    process: Process
    backends: tuple[BackendRow, ...]
    servers: Mapping[tuple[str, str], ServerRow]


def tables(info: str, states: str, stat: str) -> Tables:
    """All three answers to `QUESTIONS` as one value."""
    rows = list(_csv_rows(stat))
    by_server = {(row["pxname"], row["svname"]): row for row in rows if row["type"] == "2"}
    servers = (_server(state, by_server) for state in _state_rows(states))
    return Tables(
        process=_process(info),
        backends=tuple(_backend(row) for row in rows if row["type"] == "1"),
        servers={(server.pool, server.name): server for server in servers if server},
    )


def _process(info: str) -> Process:
    fields = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
    started = fields.get("Start_time_sec")
    return Process(
        pid=_number(fields, "Pid"),
        uptime_s=_number(fields, "Uptime_sec"),
        started_at=int(started) if started and started.isdigit() else None,
        dropped_logs=_number(fields, "DroppedLogs") if "DroppedLogs" in fields else 0,
    )


def _state_rows(states: str) -> Iterator[Mapping[str, str]]:
    """Rows of `show servers state`: a version line, a `# ` header, then space-separated rows."""
    lines = states.splitlines()
    header = next((line for line in lines if line.startswith("# ")), None)
    if lines[:1] != ["1"] or header is None:
        raise Unavailable(f"show servers state begins with {states[:80]!r}; version 1 was expected")
    names = header[2:].split()
    for line in lines:
        if line and line != "1" and not line.startswith("#"):
            yield dict(zip(names, line.split(), strict=False))


def _csv_rows(stat: str) -> Iterator[Mapping[str, str]]:
    if not stat.startswith("# pxname,"):
        raise Unavailable(f"show stat begins with {stat[:80]!r}; '# pxname,' was expected")
    for row in csv.DictReader(stat[2:].splitlines()):
        yield {key: value or "" for key, value in row.items() if isinstance(key, str)}


def _server(
    state: Mapping[str, str], by_server: Mapping[tuple[str, str], Mapping[str, str]]
) -> ServerRow | None:
    """State and counters joined; None for a server that came or went between the two tables."""
    pool, name = state.get("be_name", ""), state.get("srv_name", "")
    counters = by_server.get((pool, name))
    if counters is None:
        return None
    admin = _number(state, "srv_admin_state")
    return ServerRow(
        pool=pool,
        name=name,
        address=f"{state.get('srv_addr')}:{state.get('srv_port')}",
        closed=bool(admin & (_MAINTENANCE | _DRAIN)),
        down=_number(state, "srv_op_state") == Operation.STOPPED,
        weight=_number(state, "srv_uweight"),
        limit=_number(counters, "slim") if counters.get("slim") else UNLIMITED,
        in_flight=_number(counters, "scur"),
        queue=_number(counters, "qcur"),
        sessions_total=_number(counters, "stot"),
    )


def _backend(row: Mapping[str, str]) -> BackendRow:
    return BackendRow(
        pool=row["pxname"],
        queue=_number(row, "qcur"),
        current=_number(row, "scur"),
        arrivals_total=_number(row, "stot"),
        denied_total=_number(row, "dreq"),
        unserved_total=_number(row, "econ"),
    )


def _number(fields: Mapping[str, str], key: str) -> int:
    """A whole number, at least 0: an absent one is an error, never zero."""
    text = fields.get(key)
    if text is None or not text.isdigit():
        raise Unavailable(f"{key} is {text!r}; a whole number of at least 0 was expected")
    return int(text)
