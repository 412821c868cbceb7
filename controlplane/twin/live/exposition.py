"""One engine's `/metrics`: names, types, labels, buckets and help texts of vLLM 0.32.

A fleet is scraped some 24 times a second, so what can't change is printed once: the families that
stand still as a whole, and of the histograms everything but their values. Families therefore come
in another order than vLLM's; each is printed by the same library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from controlplane.twin.engine.costs import BLOCK_TOKENS
from controlplane.twin.live.helps import HELP
from controlplane.twin.live.histogram import Histogram
from controlplane.twin.live.stats import Stats

HTTP_HIGHR = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
)  # fmt: skip
HTTP_LOWR = (0.1, 0.5, 1.0)
HANDLERS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
KEPT = 1024
"""Texts kept, one of each kind for a start of an instance."""

PYTHON = {
    "implementation": "CPython",
    "major": "3",
    "minor": "11",
    "patchlevel": "7",
    "version": "3.11.7",
}
CACHE_CONFIG = {
    "cache_dtype": "auto",
    "enable_prefix_caching": "False",
    "gpu_memory_utilization": "0.9",
    "kv_cache_max_concurrency": "None",
    "num_cpu_blocks": "None",
    "prefix_caching_hash_algo": "sha256",
    "sliding_window": "None",
}

Rows = Sequence[tuple[Mapping[str, str], float]]
"""Label values and the sample's value."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the engine says of itself at one scrape. `created` in epoch seconds, `cpu_s`: processor
    seconds of the process, `http`: requests by handler, method and class of status; `asleep`: its weights
    are in host memory."""

    model: str
    running: int
    waiting: int
    kv_use: float
    kv_tokens: int
    created: float
    cpu_s: float
    http: Mapping[tuple[str, str, str], int]
    asleep: bool = False


def render(snapshot: Snapshot, stats: Stats) -> bytes:
    """The text of one scrape."""
    moving = _text(lambda: _moving(snapshot, stats))
    steady = _steady_text(snapshot.model, snapshot.kv_tokens, snapshot.created)
    return (moving + steady + _histograms_text(snapshot, stats)).encode()


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families()


def _text(families: Callable[[], Iterator[Metric]]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry).decode()


def _labels(model: str) -> dict[str, str]:
    return {"engine": "0", "model_name": model}


def _gauge(name: str, rows: Rows) -> Metric:
    family = GaugeMetricFamily(name, HELP[name], labels=list(rows[0][0]))
    for labels, value in rows:
        family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, rows: Rows, created: float | None) -> Metric:
    """`created` None: without a `_created` series, as those of the Python runtime are."""
    family = CounterMetricFamily(name, HELP[name], labels=list(rows[0][0]))
    for labels, value in rows:
        family.add_metric(list(labels.values()), value, created=created)
    return family


def _histogram(name: str, labels: Mapping[str, str], bounds: Sequence[float], created: float) -> Metric:
    """An empty one, with the `_created` gauge that the Python client prints beside it."""
    family = HistogramMetricFamily(name, HELP[name], labels=list(labels))
    family.add_metric(list(labels.values()), Histogram(bounds).cumulative(), 0.0)
    family.add_sample(f"{name}_created", dict(labels), created)
    return family


def _moving(now: Snapshot, stats: Stats) -> Iterator[Metric]:
    """What changes from scrape to scrape, but for the histograms."""
    own = _labels(now.model)
    yield _counter("process_cpu_seconds", [({}, now.cpu_s)], None)
    yield _gauge("vllm:num_requests_running", [(own, now.running)])
    yield _gauge("vllm:num_requests_waiting", [(own, now.waiting)])
    reasons: Rows = [({**own, "reason": "capacity"}, now.waiting), ({**own, "reason": "deferred"}, 0.0)]
    yield _gauge("vllm:num_requests_waiting_by_reason", reasons)
    yield _gauge("vllm:kv_cache_usage_perc", [(own, now.kv_use)])
    state = "weights_offloaded" if now.asleep else "awake"
    states: Rows = [({**own, "sleep_state": each}, float(each == state)) for each in SLEEP_STATES]
    yield _gauge("vllm:engine_sleep_state", states)
    for name, count in (
        ("num_preemptions", stats.preemptions),
        ("prompt_tokens", stats.prompt_tokens),
        ("generation_tokens", stats.generation_tokens),
    ):
        yield _counter(f"vllm:{name}", [(own, count)], now.created)
    sources = {"local_compute": stats.prompt_tokens, "local_cache_hit": 0, "external_kv_transfer": 0}
    by_source: Rows = [({**own, "source": source}, count) for source, count in sources.items()]
    yield _counter("vllm:prompt_tokens_by_source", by_source, now.created)
    ends: Rows = [({**own, "finished_reason": reason}, count) for reason, count in stats.finished.items()]
    yield _counter("vllm:request_success", ends, now.created)
    yield _counter("http_requests", _requests(now), now.created)


def _requests(now: Snapshot) -> Rows:
    counts = now.http or {(HANDLERS[0], "POST", "2xx"): 0}
    return [
        ({"handler": handler, "method": method, "status": status}, count)
        for (handler, method, status), count in counts.items()
    ]


@lru_cache(maxsize=KEPT)
def _steady_text(model: str, kv_tokens: int, created: float) -> str:
    return _text(lambda: _steady(model, kv_tokens, created))


def _steady(model: str, kv_tokens: int, created: float) -> Iterator[Metric]:
    """What stays the same for the life of a process."""
    yield from _runtime(created)
    yield from _unused(model, created)
    sizes = {
        "block_size": str(BLOCK_TOKENS),
        "engine": "0",
        "kv_cache_size_tokens": str(kv_tokens),
        "num_gpu_blocks": str(kv_tokens // BLOCK_TOKENS),
    }
    yield _gauge("vllm:cache_config_info", [(dict(sorted({**CACHE_CONFIG, **sizes}.items())), 1.0)])
    yield from _http(created)


def _runtime(created: float) -> Iterator[Metric]:
    for name in (
        "python_gc_objects_collected",
        "python_gc_objects_uncollectable",
        "python_gc_collections",
    ):
        yield _counter(name, [({"generation": generation}, 0.0) for generation in "012"], None)
    yield _gauge("python_info", [(PYTHON, 1.0)])
    for name, value in (
        ("process_virtual_memory_bytes", 2.0e9),
        ("process_resident_memory_bytes", 6.4e8),
        ("process_start_time_seconds", created),
        ("process_open_fds", 34.0),
        ("process_max_fds", 20_000.0),
    ):
        yield _gauge(name, [({}, value)])


def _unused(model: str, created: float) -> Iterator[Metric]:
    """Counters of what the twin never does."""
    own = _labels(model)
    for name in (
        "estimated_flops_per_gpu",
        "estimated_read_bytes_per_gpu",
        "estimated_write_bytes_per_gpu",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "external_prefix_cache_queries",
        "external_prefix_cache_hits",
        "mm_cache_queries",
        "mm_cache_hits",
        "prompt_tokens_cached",
    ):
        yield _counter(f"vllm:{name}", [(own, 0.0)], created)
    tiers = ("device", "host", "p2p", "disk", "external_unspecified")
    by_tier: Rows = [({**own, "source": tier}, 0.0) for tier in tiers]
    yield _counter("vllm:prompt_tokens_cached_by_source", by_tier, created)
    limits = ("max_num_queued_reqs", "max_num_queued_tokens")
    by_limit: Rows = [({"model_name": model, "reason": limit}, 0.0) for limit in limits]
    yield _counter("vllm:admission_rejections", by_limit, created)


def _http(created: float) -> Iterator[Metric]:
    """The API server's own sizes and times; the twin doesn't count them."""
    for name in ("http_request_size_bytes", "http_response_size_bytes"):
        family = SummaryMetricFamily(name, HELP[name], labels=["handler"])
        for handler in HANDLERS:
            family.add_metric([handler], 0, 0.0)
            family.add_sample(f"{name}_created", {"handler": handler}, created)
        yield family
    yield _histogram("http_request_duration_highr_seconds", {}, HTTP_HIGHR, created)
    one = {"handler": HANDLERS[0], "method": "POST"}
    yield _histogram("http_request_duration_seconds", one, HTTP_LOWR, created)


def _histograms_text(now: Snapshot, stats: Stats) -> str:
    values = (
        value
        for each in stats.histograms.values()
        for value in (*accumulate(each.counts), sum(each.counts), each.total)
    )
    form = _histograms_form(now.model, stats.max_model_len, now.created)
    return form % tuple(_number(float(value)) for value in values)


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library's own notation


@lru_cache(maxsize=KEPT)
def _histograms_form(model: str, max_model_len: int, created: float) -> str:
    """The histograms' text with `%s` for each value: cumulative counts, then count and sum."""
    empty = Stats(max_model_len).histograms
    families = (
        _histogram(f"vllm:{name}", _labels(model), each.bounds, created) for name, each in empty.items()
    )
    return _text(lambda: families).replace("%", "%%").replace(" 0.0\n", " %s\n")
