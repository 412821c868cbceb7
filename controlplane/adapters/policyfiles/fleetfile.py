"""`fleet.yaml`: where Prometheus, gateways, orchestrator and database are.

Secrets are named by their place (a file, an environment variable) and never written
here. Relative paths count from the file's own directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from controlplane import settings as typed
from controlplane.adapters.policyfiles import document
from controlplane.adapters.policyfiles.document import Loc
from controlplane.adapters.policyfiles.leaves import LABEL, URL, VARIABLE, Leaf, duration, text, whole, word
from controlplane.adapters.policyfiles.shape import Closed, defaults, shaped
from controlplane.ports import InvalidConfig

_PROMETHEUS, _GATEWAY = defaults(typed.PrometheusSettings), defaults(typed.GatewaySettings)
_ORCHESTRATOR, _DATABASE = defaults(typed.OrchestratorSettings), defaults(typed.DatabaseSettings)
_CADENCE, _LISTEN = defaults(typed.CadenceSettings), defaults(typed.ListenSettings)

SOCKET_PATH_MAX = 107
"""Longest path in bytes of a Unix socket on Linux (sun_path, less its closing zero)."""

_PATH = text(r"[^\x00-\x1f]{1,500}", "a path")
_HOST = text(r"[A-Za-z0-9.:_-]{1,253}", "a host's name or address, such as 127.0.0.1")


def _database_url(value: object) -> str:
    written = value if isinstance(value, str) else ""
    scheme, separator, rest = written.partition("://")
    if not separator or scheme.partition("+")[0] not in {"sqlite", "postgresql"}:
        raise ValueError("")
    address, _, query = rest.partition("?")
    if ":" in address.rpartition("@")[0] or "password" in query.lower():
        raise ValueError("no password in a URL: name password_file or password_env instead")
    return written


_DATABASE_URL = Leaf(
    _database_url,
    "sqlite:///var/trimtab.db or postgresql+psycopg://user@host/name, without a password",
    {"type": "string", "pattern": "^(sqlite|postgresql)"},
    quiet=True,
)


class PrometheusSection(Closed):
    """Where readings come from."""

    url: Annotated[str, URL]
    timeout: Annotated[float, duration("50ms", "1m")] = _PROMETHEUS["timeout_s"]
    """For one query."""
    deadline: Annotated[float, duration("50ms", "5m")] = _PROMETHEUS["deadline_s"]
    """For all queries of one cycle."""
    scrape_interval: Annotated[float, duration("100ms", "5m")] = _PROMETHEUS["scrape_interval_s"]
    """How often Prometheus asks the engines; policies' windows are checked against it."""
    token_file: Annotated[str | None, _PATH] = None
    """A file with a bearer token."""
    token_env: Annotated[str | None, VARIABLE] = None
    """The environment variable with a bearer token."""
    basic_auth_file: Annotated[str | None, _PATH] = None
    """A file with user:password."""
    basic_auth_env: Annotated[str | None, VARIABLE] = None
    """The environment variable with user:password."""


class GatewaySection(Closed):
    """One gateway process."""

    name: Annotated[str, LABEL]
    kind: Annotated[typed.GatewayKind, word(typed.GatewayKind)]
    socket: Annotated[str, _PATH]
    """The Unix socket of its runtime API."""
    timeout: Annotated[float, duration("50ms", "1m")] = _GATEWAY["timeout_s"]


class OrchestratorSection(Closed):
    """Who runs the engines."""

    kind: Annotated[typed.OrchestratorKind, word(typed.OrchestratorKind)] = _ORCHESTRATOR["kind"]
    url: Annotated[str, URL] = _ORCHESTRATOR["url"]
    timeout: Annotated[float, duration("50ms", "1m")] = _ORCHESTRATOR["timeout_s"]


class DatabaseSection(Closed):
    """Where the record is kept."""

    url: Annotated[str, _DATABASE_URL] = _DATABASE["url"]
    password_file: Annotated[str | None, _PATH] = None
    password_env: Annotated[str | None, VARIABLE] = None


class CadenceSection(Closed):
    """Time between cycles."""

    weights: Annotated[float, duration("500ms", "1m")] = _CADENCE["weights_s"]
    capacity: Annotated[float, duration("1s", "10m")] = _CADENCE["capacity_s"]


class ListenSection(Closed):
    """Where our own /metrics, /healthz and /alerts answer."""

    host: Annotated[str, _HOST] = _LISTEN["host"]
    port: Annotated[int, whole(0, 65_535)] = _LISTEN["port"]


class WebhookSection(Closed):
    """Alertmanager's way in: POST /alerts."""

    token_file: Annotated[str | None, _PATH] = None
    """A file with the bearer token that Alertmanager must show."""
    token_env: Annotated[str | None, VARIABLE] = None
    """The environment variable with it."""


class FleetFile(Closed):
    """One cluster's fleet, and how to reach what serves it."""

    cluster: Annotated[str, LABEL]
    prometheus: PrometheusSection
    gateways: Annotated[tuple[GatewaySection, ...], Field(max_length=64)] = ()
    orchestrator: OrchestratorSection = Field(default_factory=OrchestratorSection)
    database: DatabaseSection = Field(default_factory=DatabaseSection)
    cadence: CadenceSection = Field(default_factory=CadenceSection)
    listen: ListenSection = Field(default_factory=ListenSection)
    webhook: WebhookSection | None = None


def load_fleet(path: Path) -> typed.FleetSettings:
    """The fleet file as typed settings. Raises InvalidConfig with all problems."""
    read, base = document.read(path), path.absolute().parent
    file = shaped(read, FleetFile)
    problems = [read.problem(loc, said) for loc, said in _contradictions(file, base)]
    if problems:
        raise InvalidConfig(problems)
    return _settings(file, base)


def _contradictions(file: FleetFile, base: Path) -> Iterator[tuple[Loc, str]]:
    yield from _prometheus_contradictions(file.prometheus)
    yield from _gateway_contradictions(file.gateways, base)
    if file.orchestrator.kind is typed.OrchestratorKind.TWIN and not file.orchestrator.url:
        yield ("orchestrator", "url"), "is required and missing with kind twin"
    if file.orchestrator.kind is not typed.OrchestratorKind.TWIN and file.orchestrator.url:
        said = f"is for kind twin; kind {file.orchestrator.kind} asks nobody there"
        yield ("orchestrator", "url"), said
    if file.database.password_file and file.database.password_env:
        yield ("database", "password_env"), "allowed: one of password_file and password_env"
    if file.webhook and bool(file.webhook.token_file) == bool(file.webhook.token_env):
        yield ("webhook",), "allowed: exactly one of token_file and token_env"
    if file.cadence.capacity < file.cadence.weights:
        said = f"{file.cadence.capacity:g}s, allowed: at least cadence.weights ({file.cadence.weights:g}s)"
        yield ("cadence", "capacity"), said


def _prometheus_contradictions(section: PrometheusSection) -> Iterator[tuple[Loc, str]]:
    if section.timeout > section.deadline:
        said = f"{section.timeout:g}s, allowed: at most prometheus.deadline ({section.deadline:g}s)"
        yield ("prometheus", "timeout"), said
    ways = [
        key
        for key in ("token_file", "token_env", "basic_auth_file", "basic_auth_env")
        if getattr(section, key)
    ]
    if len(ways) > 1:
        yield ("prometheus", ways[1]), f"allowed: only one of {', '.join(ways)}"


def _gateway_contradictions(gateways: Sequence[GatewaySection], base: Path) -> Iterator[tuple[Loc, str]]:
    names = [each.name for each in gateways]
    sockets = [each.socket for each in gateways]
    for n, each in enumerate(gateways):
        if each.name in names[:n]:
            yield ("gateways", n, "name"), f"{each.name}, a name that stands above already"
        if each.socket in sockets[:n]:
            yield ("gateways", n, "socket"), "a socket that another gateway above has already"
        if len(str(base / each.socket).encode()) > SOCKET_PATH_MAX:
            yield ("gateways", n, "socket"), f"allowed: at most {SOCKET_PATH_MAX} bytes as a full path"


def _settings(file: FleetFile, base: Path) -> typed.FleetSettings:
    return typed.FleetSettings(
        cluster=file.cluster,
        prometheus=_prometheus(file.prometheus, base),
        gateways=tuple(
            typed.GatewaySettings(each.name, each.kind, base / each.socket, each.timeout)
            for each in file.gateways
        ),
        orchestrator=typed.OrchestratorSettings(
            file.orchestrator.kind, file.orchestrator.url, file.orchestrator.timeout
        ),
        database=_database(file.database, base),
        cadence=typed.CadenceSettings(file.cadence.weights, file.cadence.capacity),
        listen=typed.ListenSettings(file.listen.host, file.listen.port),
        webhook=_webhook(file.webhook, base),
    )


def _webhook(section: WebhookSection | None, base: Path) -> typed.WebhookSettings | None:
    token = _secret(section.token_file, section.token_env, base) if section else None
    return typed.WebhookSettings(token) if token else None


def _prometheus(section: PrometheusSection, base: Path) -> typed.PrometheusSettings:
    return typed.PrometheusSettings(
        url=section.url,
        timeout_s=section.timeout,
        deadline_s=section.deadline,
        scrape_interval_s=section.scrape_interval,
        bearer=_secret(section.token_file, section.token_env, base),
        basic=_secret(section.basic_auth_file, section.basic_auth_env, base),
    )


def _database(section: DatabaseSection, base: Path) -> typed.DatabaseSettings:
    """A relative SQLite file counts from the fleet file, like every path in it."""
    url = section.url
    prefix, relative, name = url.partition(":///")
    if prefix.startswith("sqlite") and relative and name and not name.startswith(("/", ":")):
        url = f"{prefix}:///{base / name}"
    return typed.DatabaseSettings(url, _secret(section.password_file, section.password_env, base))


def _secret(file: str | None, env: str | None, base: Path) -> typed.SecretRef | None:
    return typed.SecretRef(base / file if file else None, env) if file or env else None
