"""A layout as HAProxy's files: the configuration, the model map and the model list.

Pure. Each directive that looks optional is not: `docs/gateways.md` names, for each, what
happens without it and the test that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controlplane.adapters.gateways.haproxy.layout import (
    RING,
    GatewayLayout,
    PoolLayout,
    ServerLayout,
    problems,
)
from controlplane.ports import InvalidConfig

CONFIG_FILE = "haproxy.cfg"
MAP_FILE = "models.map"
MODELS_FILE = "models.json"

_RING, _RING_BYTES = "doorlog", 4 << 20
_REWRITE_RESERVE = 1024  # tune.maxrewrite: what HAProxy keeps free for headers it adds
_HEADERS_ALLOWANCE = 16_384  # a body this near to the buffer's end may have been cut

_ERRORS = {
    400: "the request is malformed",
    401: "an API key is needed",
    403: "this is not allowed",
    404: "there is nothing here",
    408: "the request took too long to arrive",
    413: "the request is too large",
    429: "too many requests",
    500: "the gateway failed",
    502: "the engine closed before it answered",
    503: "no instance is free",
    504: "the engine did not answer in time",
}


@dataclass(frozen=True, slots=True)
class RenderedFiles:
    """The three files, by content. They belong in one directory; the configuration finds the others."""

    config: str
    model_map: str
    models: str

    def by_name(self) -> dict[str, str]:
        """File name to content; the configuration last, because it refers to the others."""
        return {MAP_FILE: self.model_map, MODELS_FILE: self.models, CONFIG_FILE: self.config}


def render(layout: GatewayLayout) -> RenderedFiles:
    """All files of a layout. Raises InvalidConfig with every problem at once."""
    if found := problems(layout):
        raise InvalidConfig(found)
    sections = [_global(layout), _defaults(layout), _door(layout), _exporter(layout)]
    sections += [_backend(layout, pool) for pool in layout.pools]
    if layout.log and layout.log.startswith(RING):
        sections.append(_ring(layout.log.removeprefix(RING)))
    return RenderedFiles("\n".join(map(_section, sections)), _model_map(layout), _models(layout))


def _section(lines: Iterable[str]) -> str:
    head, *body = lines
    return "\n".join([head, *(f"    {line}" for line in body), ""])


def _global(layout: GatewayLayout) -> Iterator[str]:
    yield "global"
    yield "default-path config"
    yield f"nbthread {layout.threads}"
    if layout.max_connections is not None:
        yield f"maxconn {layout.max_connections}"
    yield f"tune.bufsize {layout.buffer_bytes}"
    yield f"tune.maxrewrite {_REWRITE_RESERVE}"
    # Never on TCP: 2.6 answers `stats socket ... ssl ... verify required` in plain text to anybody.
    yield f"stats socket '{layout.socket}' mode 600 level admin"
    if layout.log:
        receiver = f"ring@{_RING}" if layout.log.startswith(RING) else layout.log
        yield f"log {receiver} len 4096 format raw local0"


def _defaults(layout: GatewayLayout) -> Iterator[str]:
    times = layout.timeouts
    yield "defaults"
    yield "mode http"
    yield "option http-keep-alive"
    yield "option dontlognull"
    yield "option http-no-delay"
    yield "option abortonclose"
    yield "option redispatch"
    yield "retries 1"
    yield "retry-on conn-failure 503"
    yield "balance leastconn"
    yield f"timeout connect {_ms(times.connect_s)}"
    yield f"timeout queue {_ms(times.queue_s)}"
    yield f"timeout client {_ms(times.generation_s)}"
    yield f"timeout server {_ms(times.generation_s)}"
    yield f"timeout http-request {_ms(times.headers_s)}"
    yield f"timeout http-keep-alive {_ms(times.keep_alive_s)}"
    yield f"timeout check {_ms(times.check_s)}"
    for status, message in _ERRORS.items():
        retry = f" hdr retry-after {layout.retry_after_s}" if status in (429, 503) else ""
        yield f"http-error status {status} {_json_error(message, f'gateway_{status}')}{retry}"


def _door(layout: GatewayLayout) -> Iterator[str]:
    yield "frontend door"
    yield f"bind {layout.listen}"
    if layout.log:
        yield "log global"
        yield f"log-format '{_LOG_LINE}'"
    yield f"http-request return status 200 content-type application/json file {MODELS_FILE} {_MODELS_ASKED}"
    yield f"http-request return status 200 content-type application/json string '{_HEALTHY}' {_HEALTH_ASKED}"
    only_post = _json_error("only POST requests are routed", "not_found")
    yield f"http-request return status 404 {only_post} unless METH_POST"
    yield f"http-request wait-for-body time {_ms(layout.timeouts.body_s)}"
    yield from _routing(layout)
    yield "use_backend %[var(txn.backend)]"


def _routing(layout: GatewayLayout) -> Iterator[str]:
    """Model to backend: by body; where it names none, by header, then by path; and never by guess."""
    yield "http-request set-var(txn.model) req.body,json_query('$.model')"
    # json_query gives nothing for a text with `\\/`, which JSON allows and some languages write.
    yield f"http-request set-var(txn.model) req.body,{_UNESCAPED},json_query('$.model') {_NO_MODEL_YET}"
    yield f"http-request set-var(txn.model) req.hdr(x-model) {_NO_MODEL_YET}"
    yield f"http-request set-var(txn.backend) var(txn.model),map_str({MAP_FILE})"
    for pool in layout.pools:
        yield (
            f"http-request set-var(txn.backend) str({pool.pool}) "
            f"if {{ path_beg /pools/{pool.pool}/ }} !{{ var(txn.model) -m found }}"
        )
    yield "http-request replace-path ^/pools/[^/]+(/.*) \\1"
    yield from _cut_bodies(layout)
    missing = _json_error("the request names no model", "model_missing")
    yield f"http-request return status 400 {missing} if !has_backend !{{ var(txn.model) -m found }}"
    unknown = _json_error("no pool serves this model", "model_not_found")
    yield f"http-request return status 404 {unknown} if !has_backend"


def _cut_bodies(layout: GatewayLayout) -> Iterator[str]:
    """A body beyond the buffer is read in part: a model at its end is not seen, and that is no 404."""
    nearly_full = layout.buffer_bytes - _REWRITE_RESERVE - _HEADERS_ALLOWANCE
    yield "acl has_backend var(txn.backend) -m found"
    yield "http-request set-var(txn.body_len) req.body_len"
    yield "acl body_cut req.body_size,sub(txn.body_len) gt 0"
    yield f"acl body_cut req.body_len ge {max(1, nearly_full)}"
    when = "if !has_backend body_cut !{ var(txn.model) -m found }"
    if layout.long_pool:
        yield f"http-request set-var(txn.backend) str({layout.long_pool}) {when}"
    else:
        advice = "the body is too large to find its model: put model first, or send the header x-model"
        yield f"http-request return status 413 {_json_error(advice, 'model_unreadable')} {when}"


def _exporter(layout: GatewayLayout) -> Iterator[str]:
    yield "frontend exporter"
    yield f"bind {layout.exporter}"
    yield "http-request use-service prometheus-exporter if { path /metrics }"
    yield "http-request return status 404 if TRUE"


def _ring(address: str) -> Iterator[str]:
    """Lines wait here while their reader is away; the oldest are overwritten."""
    yield f"ring {_RING}"
    yield "format raw"
    yield "maxlen 4096"
    yield f"size {_RING_BYTES}"
    yield "timeout connect 2s"
    yield "timeout server 10s"
    yield f"server reader {address}"


def _backend(layout: GatewayLayout, pool: PoolLayout) -> Iterator[str]:
    yield f"backend {pool.pool}"
    yield "option httpchk GET /health"
    yield "http-check expect status 200"
    yield "http-request set-var(txn.arrived) date(0,ms)"
    busy = _json_error("too many requests are waiting", "queue_full")
    yield (
        f"http-request deny status 503 {busy} hdr retry-after {layout.retry_after_s} "
        f"if {{ queue({pool.pool}) ge {pool.bound} }}"
    )
    yield f"http-request disable-l7-retry if {{ rand(100) ge {layout.retry_budget_percent} }}"
    # The first body byte, stamped: engines send headers at once, so %Tr says nothing of a first token.
    yield f"http-response wait-for-body time {_ms(layout.timeouts.generation_s)} at-least 1"
    yield "http-response set-var(txn.ttft) date(0,ms),sub(txn.arrived)"
    yield "default-server check inter 2s fall 3 rise 1 init-addr last,libc,none"
    yield from map(_server, pool.servers)


def _server(server: ServerLayout) -> str:
    state = " disabled" if server.drained else ""
    return f"server {server.name} {server.address} weight {server.weight} maxconn {server.limit}{state}"


def _model_map(layout: GatewayLayout) -> str:
    """Model to backend, one pair a line."""
    return "".join(f"{model} {pool.pool}\n" for pool in layout.pools for model in pool.models)


def _models(layout: GatewayLayout) -> str:
    names = [model for pool in layout.pools for model in pool.models]
    data = [{"id": name, "object": "model", "owned_by": "trimtab"} for name in names]
    return json.dumps({"object": "list", "data": data}) + "\n"


def _json_error(message: str, code: str) -> str:
    """Content type and body of an error as OpenAI's clients read it. Texts are ours: no quoting needed."""
    body = json.dumps({"error": {"message": message, "type": "gateway_error", "code": code}})
    return f"content-type application/json string '{body}'"


def _ms(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


_HEALTHY = '{"status":"ok"}'
_MODELS_ASKED = "if METH_GET { path /v1/models }"
_HEALTH_ASKED = "if METH_GET { path /health }"
_NO_MODEL_YET = "unless { var(txn.model) -m found }"
_UNESCAPED = r"regsub('\\\\/',/,g)"  # two layers of HAProxy's own quoting lie above the expression
_LOG_LINE = (
    '{"pid":%pid,"at_ms":%Ts%ms,"arrived_ms":"%[var(txn.arrived)]","ended_ms":"%[date(0,ms)]","pool":"%b",'
    '"server":"%s","class":"%[var(txn.class)]","status":%ST,"termination":"%tsc","wait_ms":%Tw,'
    '"ttft_ms":"%[var(txn.ttft)]","total_ms":%Ta,"bytes":%B,"retries":"%rc","server_queue":%sq,'
    '"pool_queue":%bq,"model":"%[var(txn.model),json(utf8s)]"}'
)
