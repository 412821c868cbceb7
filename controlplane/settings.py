"""What `fleet.yaml` says, typed: where things are and how to reach them.

Endpoints and secrets' *places* live here and only here; a policy can name neither.
The YAML form and its errors: `adapters.policyfiles.fleetfile`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from controlplane.ports import InvalidConfig


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is found: a file, or an environment variable. Never the secret itself.

    Exactly one of the two is set. `repr` shows the place, which is safe to log.
    """

    file: Path | None = None
    env: str | None = None

    def read(self) -> str:
        """The secret as it is now (files rotate, so callers read again), white space stripped.

        Raises InvalidConfig, naming the place, where it is absent, unreadable or empty.
        """
        try:
            found = _content(self.file) if self.file else os.environ.get(self.env or "", "")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig([f"{self.file}: the secret file cannot be read ({reason(error)})"]) from None
        if not found.strip():
            raise InvalidConfig([f"{self.file or self.env}: the secret is empty or not set"])
        return found.strip()


def _content(file: Path) -> str:
    """The text in a file. Opening a pipe waits for a writer, and some devices never end."""
    if file.exists() and not file.is_file():
        raise InvalidConfig([f"{file}: the secret file cannot be read (is no plain file)"])
    return file.read_text("utf-8")


def reason(error: Exception) -> str:
    """What went wrong in a few words, without the file's content (which may be a secret)."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is not UTF-8 text"


class GatewayKind(StrEnum):
    """Gateways we can drive."""

    HAPROXY = "haproxy"


class OrchestratorKind(StrEnum):
    """Who runs the engines. `none`: nobody we can ask; no inventory, so nothing shrinks. `gauge`: somebody
    who follows a number that we export; what exists is what Prometheus discovers."""

    TWIN = "twin"
    GAUGE = "gauge"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where readings come from. Times in seconds.

    `timeout_s` is for one query, `deadline_s` for all queries of one cycle; both end in
    Missing, never in a retry within the cycle. `scrape_interval_s` is how often Prometheus
    asks the engines: windows are checked against it. `bearer` and `basic` (its content:
    `user:password`) exclude each other.
    """

    url: str
    timeout_s: float = 2.0
    deadline_s: float = 3.0
    scrape_interval_s: float = 5.0
    bearer: SecretRef | None = None
    basic: SecretRef | None = None


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One gateway process. `socket` is the path of its runtime API's Unix socket."""

    name: str
    kind: GatewayKind
    socket: Path
    timeout_s: float = 1.5


@dataclass(frozen=True, slots=True)
class OrchestratorSettings:
    """Who knows what exists. `url` is of kind `twin` alone."""

    kind: OrchestratorKind = OrchestratorKind.NONE
    url: str = ""
    timeout_s: float = 1.5


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The record, as an SQLAlchemy URL without a password; `password` says where that is."""

    url: str = "sqlite:///var/trimtab.db"
    password: SecretRef | None = None


@dataclass(frozen=True, slots=True)
class CadenceSettings:
    """Seconds between cycles. Weights are fast, small and reversible; capacity is slow and gated."""

    weights_s: float = 5.0
    capacity_s: float = 15.0


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where our own `/metrics`, `/healthz` and `/alerts` answer. Port 0: any free one."""

    host: str = "127.0.0.1"
    port: int = 9750


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Alertmanager's way in (`/alerts`). `token`: the bearer token that it must show."""

    token: SecretRef


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """All of `fleet.yaml`. `cluster` is a DNS label, and the first column of every key.

    `webhook` None: nobody may send pages here.
    """

    cluster: str
    prometheus: PrometheusSettings
    gateways: tuple[GatewaySettings, ...] = ()
    orchestrator: OrchestratorSettings = field(default_factory=OrchestratorSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    cadence: CadenceSettings = field(default_factory=CadenceSettings)
    listen: ListenSettings = field(default_factory=ListenSettings)
    webhook: WebhookSettings | None = None
