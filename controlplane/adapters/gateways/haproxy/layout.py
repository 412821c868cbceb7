"""What a HAProxy shall look like, typed, and everything that can be wrong with it.

Nothing here knows HAProxy's syntax; `render.py` does. Every name is checked against a
closed alphabet before it may stand in a configuration line, because a line break in a
pool's name would be a directive, and `%[` in a model's name an expression.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.domain.ids import NAME, InstanceId, PoolName
from controlplane.domain.load import RETRY_AFTER_S

WEIGHT_MAX = 256
"""HAProxy's largest weight; 257 is refused."""

SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")

RING = "ring@"
"""A log that begins so goes to a ring in the gateway's memory, and from there over TCP."""

_SOCKET_PATH_MAX = 90
# A Unix socket's path ends at 107 bytes, and HAProxy binds `<path>.<pid>.tmp` before it renames.


@dataclass(frozen=True, slots=True)
class ServerLayout:
    """One instance as a server line. `address` is `host:port`, `limit` requests in flight (at
    least 1: HAProxy reads 0 as unlimited), `weight` 0..256; `drained` ones take nothing new."""

    name: str
    address: str
    limit: int
    weight: int = 100
    drained: bool = False


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """One pool as a backend. `models` are the names it serves, aliases included.

    `queue_bound`: requests that may wait before the next is refused with 503 and
    Retry-After; None: as many as its servers may have in flight, which is about one
    service time of waiting.
    """

    pool: PoolName
    models: tuple[str, ...]
    servers: tuple[ServerLayout, ...]
    queue_bound: int | None = None

    @property
    def bound(self) -> int:
        """The queue bound in force."""
        return self.queue_bound or max(1, sum(server.limit for server in self.servers))


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `generation_s` is the longest silence of an engine or of a caller who reads
    (HAProxy's timers restart with every chunk, so they bound no total); it must cover the
    longest prompt's first token. `body_s` is how long a request's body may take to arrive."""

    connect_s: float = 2.0
    queue_s: float = 60.0
    generation_s: float = 600.0
    body_s: float = 10.0
    headers_s: float = 10.0
    keep_alive_s: float = 30.0
    check_s: float = 2.0


@dataclass(frozen=True, slots=True)
class GatewayLayout:
    """One HAProxy. `listen` and `exporter` are `host:port`; `socket` is the runtime API's path.

    `long_pool` takes requests whose body is too large to be read for its model and that
    name none otherwise; without one they are told how to name it (413). `log` is
    `stdout`, a UDP receiver `host:port`, a TCP one `ring@host:port`, or None. `buffer_bytes` bounds
    what can be read of a body (64 KiB, less headers and 1 KiB); each waiting request may hold that much.
    `max_connections`: None for what the process's file descriptors allow; a smaller one makes
    callers wait unseen, before any queue. `retry_budget_percent`: share of refused requests
    that may be tried again elsewhere.
    """

    listen: str
    exporter: str
    socket: Path
    pools: tuple[PoolLayout, ...]
    timeouts: Timeouts = field(default_factory=Timeouts)
    long_pool: PoolName | None = None
    log: str | None = None
    threads: int = 2
    buffer_bytes: int = 65536
    max_connections: int | None = None
    retry_after_s: int = round(RETRY_AFTER_S)
    retry_budget_percent: int = 10


def server_name(instance: InstanceId) -> str:
    """A gateway's name for an instance: its slot, which outlives a restart in place.

    `demo/chat-8b-03@s9k2x1` is `chat-8b-03`; characters that no server name may hold
    become `_`.
    """
    slot = instance.rpartition("/")[2].partition("@")[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", slot)


def problems(layout: GatewayLayout) -> tuple[str, ...]:
    """Everything that is wrong, one sentence each, with the value and what is allowed."""
    return (*_process_problems(layout), *_pool_problems(layout), *_clashes(layout))


def _process_problems(layout: GatewayLayout) -> Iterator[str]:
    for key, address in (("listen", layout.listen), ("exporter", layout.exporter)):
        yield from _address_problems(key, address)
    if layout.log not in (None, "stdout"):
        yield from _address_problems("log", (layout.log or "").removeprefix(RING))
    yield from _socket_problems(str(layout.socket))
    for key, number, low, high in (
        ("threads", layout.threads, 1, 64),
        ("buffer_bytes", layout.buffer_bytes, 16384, 1 << 20),
        ("max_connections", 1 if layout.max_connections is None else layout.max_connections, 1, 1_000_000),
        ("retry_after_s", layout.retry_after_s, 1, 3600),
        ("retry_budget_percent", layout.retry_budget_percent, 0, 100),
    ):
        if not low <= number <= high:
            yield f"{key} is {number}; allowed are {low} to {high}"
    yield from _timeout_problems(layout.timeouts)


def _timeout_problems(timeouts: Timeouts) -> Iterator[str]:
    for key in Timeouts.__slots__:
        seconds = getattr(timeouts, key)
        if not 0.001 <= seconds <= 86_400:  # also false for NaN
            yield f"timeouts.{key} is {seconds} s; allowed are 0.001 to 86400 s"


def _socket_problems(path: str) -> Iterator[str]:
    if not path.startswith("/") or re.search(r"[^\x20-\x7e]|'", path):
        yield f"socket is {path!r}; it must be an absolute path of printable ASCII without quotes"
    if len(path.encode()) > _SOCKET_PATH_MAX:
        yield f"socket {path!r} has {len(path.encode())} bytes; at most {_SOCKET_PATH_MAX} can be bound"


def _pool_problems(layout: GatewayLayout) -> Iterator[str]:
    if not layout.pools:
        yield "there is no pool; a gateway needs at least one"
    for pool in layout.pools:
        yield from _one_pool_problems(pool)
    if layout.long_pool is not None and layout.long_pool not in {pool.pool for pool in layout.pools}:
        yield f"long_pool is {layout.long_pool!r}, which is none of the pools"


def _one_pool_problems(pool: PoolLayout) -> Iterator[str]:
    if not NAME.fullmatch(pool.pool):
        yield f"pool {pool.pool!r} is no DNS label (lower-case letters, digits and hyphens)"
    if pool.queue_bound is not None and pool.queue_bound < 1:
        yield f"pool {pool.pool!r}: queue_bound is {pool.queue_bound}; it must be at least 1"
    for model in pool.models:
        if not MODEL_NAME.fullmatch(model):
            yield f"pool {pool.pool!r}: model {model!r} may hold letters, digits and . _ : / @ + - only"
    for server in pool.servers:
        yield from _server_problems(pool.pool, server)


def _server_problems(pool: PoolName, server: ServerLayout) -> Iterator[str]:
    where = f"pool {pool!r}, server {server.name!r}"
    if not SERVER_NAME.fullmatch(server.name):
        yield f"{where}: a server name holds 1 to 64 letters, digits and _ . - only"
    yield from _address_problems(f"{where}: address", server.address)
    if server.limit < 1:
        yield f"{where}: limit is {server.limit}; it must be at least 1 (HAProxy reads 0 as unlimited)"
    if not 0 <= server.weight <= WEIGHT_MAX:
        yield f"{where}: weight is {server.weight}; allowed are 0 to {WEIGHT_MAX}"


def _address_problems(where: str, address: str) -> Iterator[str]:
    found = ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found["port"]) <= 65_535:
        yield f"{where} is {address!r}; it must be host:port with a port from 1 to 65535"


def _clashes(layout: GatewayLayout) -> Iterator[str]:
    """Names that stand twice. Two models with one name would send traffic by file order."""
    yield from _twice("pool", [pool.pool for pool in layout.pools])
    yield from _twice("model", [model for pool in layout.pools for model in pool.models])
    for pool in layout.pools:
        yield from _twice(f"pool {pool.pool!r}: server", [server.name for server in pool.servers])


def _twice(what: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} stands {count} times; it may stand once"
