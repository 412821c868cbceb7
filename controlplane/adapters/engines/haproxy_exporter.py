"""HAProxy's built-in exporter, `scope=backend`: demand at the door, by pool (a backend bears its name).

Tried on 2.6.12: `sessions_total` counts a request when it arrives, refused ones too;
`http_requests_total` only when it ENDS, so a flash crowd of long streams would show late.
A refusal by rule counts in `requests_denied_total`, a wait that ran out in `connection_errors_total`.
Aborts are counted at the end too, and so compared with the latter.
`current_sessions` includes what waits. The exporter has no histograms.
"""

from __future__ import annotations

from controlplane.adapters.engines.template import Helper, Level, Source, Span, Template
from controlplane.domain.readings import PoolSignal

_CEILING = 1e6  # requests a second at one backend


def _pool(values: str, aggregate: str = "sum") -> str:
    return f'{aggregate} by ($pool) (label_replace({values}, "pool", "$$1", "proxy", "(.*)"))'


def _rate(*names: str, span: str = "$window") -> str:
    rates = " + ".join(f"rate(haproxy_backend_{name}_total{{$gateways}}[{span}])" for name in names)
    return _pool(rates)


def _families(*names: str) -> tuple[str, ...]:
    return tuple(f"haproxy_backend_{name}" for name in names)


def _gateway(signal: PoolSignal, promql: str, *names: str, span: Span, high: float = 1e7) -> Template:
    return Template(signal, Level.POOL, Source.GATEWAY, promql, _families(*names), span=span, high=high)


TEMPLATES = (
    _gateway(PoolSignal.ARRIVALS, _rate("sessions"), "sessions_total", span=Span.WINDOW, high=_CEILING),
    _gateway(
        PoolSignal.REFUSALS,
        _rate("requests_denied", "connection_errors"),
        "requests_denied_total",
        "connection_errors_total",
        span=Span.WINDOW,
        high=_CEILING,
    ),
    _gateway(
        PoolSignal.ARRIVALS_NOW,
        _rate("sessions", span="$four"),
        "sessions_total",
        span=Span.FOUR_SCRAPES,
        high=_CEILING,
    ),
    _gateway(
        PoolSignal.REFUSALS_NOW,
        _rate("requests_denied", "connection_errors", span="$four"),
        "requests_denied_total",
        "connection_errors_total",
        span=Span.FOUR_SCRAPES,
        high=_CEILING,
    ),
    _gateway(
        PoolSignal.GATEWAY_QUEUE,
        _pool("haproxy_backend_current_queue{$gateways}"),
        "current_queue",
        span=Span.NOW,
    ),
    _gateway(
        PoolSignal.GATEWAY_IN_FLIGHT,
        _pool("haproxy_backend_current_sessions{$gateways} - haproxy_backend_current_queue{$gateways}"),
        "current_sessions",
        "current_queue",
        span=Span.NOW,
    ),
    _gateway(
        PoolSignal.CANCELLED_RATIO,
        f"{_rate('client_aborts', 'server_aborts')} / {_rate('http_requests')}",
        "client_aborts_total",
        "server_aborts_total",
        "http_requests_total",
        span=Span.WINDOW,
        high=1.0,
    ),
    Template(
        Helper.GATEWAY_AGE,
        Level.POOL,
        Source.GATEWAY,
        _pool("time() - timestamp(haproxy_backend_current_queue{$gateways})", "max"),
        _families("current_queue"),
    ),
)
