"""`/metrics`, `/healthz` and `/alerts` on one small socket of the controller's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from controlplane.loop.runner import STALLED_INTERVALS, Health
from controlplane.telemetry.page import Page
from controlplane.telemetry.webhook import HEADERS, Webhook

StartResponse = Callable[..., Any]

NO_WEBHOOK = "no webhook is set up here; fleet.yaml names its token's place: webhook: {token_file: PATH}"


def healthz(health: Health) -> tuple[int, dict[str, Any]]:
    """503 while any clock's last cycle is more than three intervals old; with every clock's figures."""
    stalled = health.stalled()
    clocks = {
        kind: {
            "last_cycle_age_s": round(health.age_s(kind), 3),
            "interval_s": beat.interval_s,
            "cycles": beat.cycles,
            "errors": beat.errors,
            "last_error": beat.last_error,
        }
        for kind, beat in health.beats.items()
    }
    reasons = [
        f"the {kind} loop finished its last cycle {age:.1f} s ago, more than {STALLED_INTERVALS:g} intervals"
        for kind, age in stalled.items()
    ]
    return (503 if stalled else 200), {"ok": not stalled, "reasons": reasons, "clocks": clocks}


class Endpoint:
    """Serves all paths from threads of its own. Raises InvalidConfig where it can't listen.

    Without a `webhook`, `/alerts` is not there and says how to have it.
    """

    def __init__(
        self, host: str, port: int, exporter: Collector, health: Health, webhook: Webhook | None = None
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        self._metrics = make_wsgi_app(registry)
        self._health = health
        self._webhook = webhook
        self._page = Page(host, port, self._answer, "listen")
        self.port = self._page.port

    def close(self) -> None:
        """Stop serving."""
        self._page.close()

    def _answer(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return self._metrics(environ, start)  # type: ignore[no-any-return]
        if path == "/alerts":
            return _text(start, *self._alerts(environ))
        if path != "/healthz":
            return _text(start, HTTPStatus.NOT_FOUND, "/metrics, /healthz and /alerts are here")
        status, body = healthz(self._health)
        start(
            f"{status} {'OK' if status == 200 else 'Service Unavailable'}",
            [("content-type", "application/json")],
        )
        return [json.dumps(body).encode() + b"\n"]

    def _alerts(self, environ: dict[str, Any]) -> tuple[HTTPStatus, str]:
        if self._webhook is None:
            return HTTPStatus.NOT_FOUND, NO_WEBHOOK
        return self._webhook.answer(environ)


def _text(start: StartResponse, status: HTTPStatus, said: str) -> Iterable[bytes]:
    start(f"{status.value} {status.phrase}", [("content-type", "text/plain"), *HEADERS.get(status, ())])
    return [f"{said}\n".encode()]
