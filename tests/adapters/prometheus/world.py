"""A fleet of exposition texts that a test controls, served over HTTP for a real Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from controlplane.adapters.engines.door import EDGES_S

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
TTFT_ALL = (*TTFT, 40.0, 80.0, 160.0, 640.0, 2560.0)
ITL = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
E2E = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 7680.0)
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


def histogram(name: str, bounds: tuple[float, ...], each: float, count: float, labels: str) -> str:
    """`count` observations of the same value `each`, as exposition text."""
    lines = [f'{name}_bucket{{{labels},le="{b}"}} {count if each <= b else 0.0}' for b in bounds]
    lines += [f'{name}_bucket{{{labels},le="+Inf"}} {count}', f"{name}_count{{{labels}}} {count}"]
    return "\n".join([*lines, f"{name}_sum{{{labels}}} {count * each}", ""])


@dataclass
class Engine:
    """One engine process whose counters grow in a straight line. Rates are per second.

    `frozen` answers the same bytes for ever; `status` other than 200 is a failed scrape, `flaky`
    fails every second one; `sawtooth` takes 500 tokens more off its counters at each scrape;
    `ragged` lets one bucket hold one more than the next; `sampled_ago_s` stamps a sample back.
    """

    running: int = 4
    waiting: int = 1
    requests: float = 10.0
    prompt: float = 200.0
    tokens: float = 50.0
    step_s: float = 0.03
    ttft_s: float = 0.09
    e2e_s: float = 0.9
    length: float = 30.0
    cpu: float = 0.5
    status: int = 200
    flaky: bool = False
    sawtooth: bool = False
    ragged: bool = False
    scrapes: int = 0
    sampled_ago_s: float | None = None
    started: float = field(default_factory=lambda: time.time() - 100.0)
    frozen: str | None = None

    def freeze(self) -> None:
        """From now on the same answer, byte by byte."""
        self.frozen = self.text()

    def answer(self) -> tuple[int, str]:
        """Status and text of one more scrape."""
        self.scrapes += 1
        return 500 if self.flaky and self.scrapes % 2 else self.status, self.text()

    def text(self) -> str:
        """The text as it is now."""
        if self.frozen is not None:
            return self.frozen
        ran = time.time() - self.started
        labels = 'engine="0",model_name="m"'
        at = "" if self.sampled_ago_s is None else f" {int((time.time() - self.sampled_ago_s) * 1000)}"
        done = self.requests * ran
        fell = -500.0 * self.scrapes if self.sawtooth else 0.0
        plain = [
            f"vllm:num_requests_running{{{labels}}} {self.running}{at}",
            f"vllm:num_requests_waiting{{{labels}}} {self.waiting}",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
            f"vllm:num_preemptions_total{{{labels}}} {0.5 * ran}",
            f"vllm:prompt_tokens_total{{{labels}}} {self.prompt * ran + fell}",
            f"vllm:generation_tokens_total{{{labels}}} {self.tokens * ran + fell}",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {done}',
            f'vllm:request_success_total{{{labels},finished_reason="abort"}} {done}',
            f'vllm:request_success_total{{{labels},finished_reason="error"}} {done / 10}',
            f"process_cpu_seconds_total {self.cpu * ran}",
            f"process_start_time_seconds {self.started}",
            "",
        ]
        return "\n".join(plain) + self._histograms(labels, done, ran)

    def _histograms(self, labels: str, done: float, ran: float) -> str:
        bent = f'vllm:time_to_first_token_seconds_bucket{{{labels},le="0.25"}} '
        text = "".join(
            histogram(f"vllm:{name}", bounds, each, count, labels)
            for name, bounds, each, count in (
                ("time_to_first_token_seconds", TTFT_ALL, self.ttft_s, done),
                ("inter_token_latency_seconds", ITL, self.step_s, self.tokens * ran),
                ("request_time_per_output_token_seconds", ITL, self.step_s, done),
                ("e2e_request_latency_seconds", E2E, self.e2e_s, done),
                ("request_generation_tokens", TOKENS, self.length, done),
                ("request_prompt_tokens", TOKENS, 2 * self.length, done),
            )
        )
        return text.replace(f"{bent}{done}", f"{bent}{done + 1}") if self.ragged else text


def idle() -> Engine:
    """A healthy engine with nothing to do: only its processor time creeps."""
    return Engine(running=0, waiting=0, requests=0.0, prompt=0.0, tokens=0.0, cpu=0.01)


def gpu(pod: str, number: int, util: float, active: float = 0.5) -> str:
    """One GPU of the DCGM exporter, as Kubernetes maps it to a pod."""
    labels = f'gpu="{number}",UUID="GPU-{number}",modelName="H100",namespace="demo",pod="{pod}",container="e"'
    values = {
        "DEV_GPU_UTIL": util,
        "DEV_FB_USED": 60000,
        "DEV_FB_FREE": 20000,
        "DEV_SM_CLOCK": 1980,
        "DEV_GPU_TEMP": 61,
        "DEV_POWER_USAGE": 510.5,
        "DEV_XID_ERRORS": 0,
        "PROF_SM_ACTIVE": active,
        "PROF_DRAM_ACTIVE": 0.4,
    }
    return "".join(f"DCGM_FI_{name}{{{labels}}} {value}\n" for name, value in values.items())


def haproxy(pool: str, ran: float, queue: int = 3, sessions: int = 11) -> str:
    """One backend row of HAProxy's exporter."""
    values = {
        "sessions_total": int(20 * ran),
        "http_requests_total": int(18 * ran),
        "requests_denied_total": int(2 * ran),
        "connection_errors_total": int(1 * ran),
        "client_aborts_total": int(3 * ran),
        "server_aborts_total": 0,
        "current_queue": queue,
        "current_sessions": sessions,
    }
    return "".join(f'haproxy_backend_{name}{{proxy="{pool}"}} {value}\n' for name, value in values.items())


def door(pool: str, ran: float) -> str:
    """Our gateway exporter: two seconds to each first token, five in all, ten a second."""
    labels = f'pool="{pool}",slot="s1",class="default",status="200"'
    text = f'trimtab_door_queue{{pool="{pool}"}} 3\n'
    for name, each in (("ttft", 2.0), ("total", 5.0)):
        text += histogram(f"trimtab_door_{name}_seconds", EDGES_S, each, 10 * ran, labels)
    return text


Page = Callable[[], tuple[int, str]]


class Pages:
    """A small exposer: a path and what it answers now."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.address = ""


@contextmanager
def exposer() -> Iterator[Pages]:
    """The exposer on a free loopback port."""
    pages = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = pages.pages.get(self.path.partition("?")[0], lambda: (404, ""))()
            body = text.encode()
            with suppress(ConnectionError):  # Prometheus hangs up when it is stopped
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    pages.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield pages
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
