"""One engine's `/metrics`: names, types, labels and buckets of vLLM 0.32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from controlplane.twin.engine.costs import BLOCK_TOKENS
from controlplane.twin.live.histogram import Histogram
from controlplane.twin.live.stats import Stats

HTTP_HIGHR = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
)  # fmt: skip
HTTP_LOWR = (0.1, 0.5, 1.0)
HANDLERS = (("/v1/chat/completions", "POST"), ("/v1/completions", "POST"), ("/v1/models", "GET"))

CACHE_CONFIG = {
    "cache_dtype": "auto",
    "enable_prefix_caching": "False",
    "gpu_memory_utilization": "0.9",
    "kv_cache_max_concurrency": "None",
    "num_cpu_blocks": "None",
    "prefix_caching_hash_algo": "sha256",
    "sliding_window": "None",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the engine says of itself at one scrape. `created` and `started` in epoch seconds,
    `cpu_s`: processor seconds of the process."""

    model: str
    running: int
    waiting: int
    kv_use: float
    kv_tokens: int
    created: float
    cpu_s: float
    http: Mapping[tuple[str, str, str], int]


class _Families(Collector):
    """Yields the families of one scrape, in the order in which vLLM prints them."""

    def __init__(self, snapshot: Snapshot, stats: Stats) -> None:
        self._now, self._stats = snapshot, stats
        self._labels = {"engine": "0", "model_name": snapshot.model}

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()
        yield self._cache_config()
        yield from self._http()

    def _counter(self, name: str, text: str, rows: Sequence[tuple[dict[str, str], float]]) -> Metric:
        family = CounterMetricFamily(name, text, labels=list(rows[0][0]))
        for labels, value in rows:
            family.add_metric(list(labels.values()), value, created=self._now.created)
        return family

    def _gauge(self, name: str, text: str, rows: Sequence[tuple[dict[str, str], float]]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(rows[0][0]))
        for labels, value in rows:
            family.add_metric(list(labels.values()), value)
        return family

    def _process(self) -> Iterator[Metric]:
        for name, text in (
            ("python_gc_objects_collected", "Objects collected during gc"),
            ("python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
            ("python_gc_collections", "Number of times this generation was collected"),
        ):
            family = CounterMetricFamily(name, text, labels=["generation"])
            for generation in "012":
                family.add_metric([generation], 0.0)
            yield family
        version = {
            "implementation": "CPython",
            "major": "3",
            "minor": "11",
            "patchlevel": "7",
            "version": "3.11.7",
        }
        yield self._gauge("python_info", "Python platform information", [(version, 1.0)])
        for name, text, value in (
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", 2.0e9),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", 6.4e8),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                self._now.created,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "process_cpu_seconds", "Total user and system CPU time spent in seconds.", value=self._now.cpu_s
        )
        yield GaugeMetricFamily("process_open_fds", "Number of open file descriptors.", value=34.0)
        yield GaugeMetricFamily("process_max_fds", "Maximum number of open file descriptors.", value=20000.0)

    def _gauges(self) -> Iterator[Metric]:
        own, now = self._labels, self._now
        yield self._gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            [(own, now.running)],
        )
        yield self._gauge(
            "vllm:num_requests_waiting", "Number of requests waiting to be processed.", [(own, now.waiting)]
        )
        yield self._gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            [({**own, "reason": "capacity"}, now.waiting), ({**own, "reason": "deferred"}, 0.0)],
        )
        yield self._gauge(
            "vllm:engine_sleep_state",
            "Engine sleep state.",
            [
                ({**own, "sleep_state": state}, float(state == "awake"))
                for state in ("awake", "weights_offloaded", "discard_all")
            ],
        )
        yield self._gauge(
            "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", [(own, now.kv_use)]
        )

    def _counters(self) -> Iterator[Metric]:
        own, stats = self._labels, self._stats
        prompt = float(stats.prompt_tokens)
        for kind in ("flops", "read_bytes", "write_bytes"):
            yield self._counter(f"vllm:estimated_{kind}_per_gpu", f"Estimated {kind} per GPU.", [(own, 0.0)])
        for name in ("prefix_cache", "external_prefix_cache", "mm_cache"):
            queried = prompt if name == "prefix_cache" else 0.0
            yield self._counter(f"vllm:{name}_queries", f"Queries of the {name}.", [(own, queried)])
            yield self._counter(f"vllm:{name}_hits", f"Hits of the {name}.", [(own, 0.0)])
        yield self._counter(
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            [(own, float(stats.preemptions))],
        )
        yield self._counter("vllm:prompt_tokens", "Number of prefill tokens processed.", [(own, prompt)])
        yield self._counter(
            "vllm:prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            [
                ({**own, "source": source}, prompt if source == "local_compute" else 0.0)
                for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
            ],
        )
        yield self._counter(
            "vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [(own, 0.0)]
        )
        yield self._counter(
            "vllm:prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them.",
            [
                ({**own, "source": source}, 0.0)
                for source in ("device", "host", "p2p", "disk", "external_unspecified")
            ],
        )
        yield self._counter(
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            [(own, float(stats.generation_tokens))],
        )
        yield self._counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            [
                ({"engine": "0", "finished_reason": reason, "model_name": self._now.model}, float(count))
                for reason, count in stats.finished.items()
            ],
        )
        yield self._counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            [
                ({"model_name": self._now.model, "reason": reason}, 0.0)
                for reason in ("max_num_queued_reqs", "max_num_queued_tokens")
            ],
        )

    def _histograms(self) -> Iterator[Metric]:
        for name, histogram in self._stats.histograms.items():
            yield _histogram(
                f"vllm:{name}", f"Histogram of {name}.", self._labels, histogram, self._now.created
            )

    def _cache_config(self) -> Metric:
        blocks = self._now.kv_tokens // BLOCK_TOKENS
        sizes = {
            "block_size": str(BLOCK_TOKENS),
            "engine": "0",
            "kv_cache_size_tokens": str(self._now.kv_tokens),
            "num_gpu_blocks": str(blocks),
        }
        labels = dict(sorted({**CACHE_CONFIG, **sizes}.items()))
        return self._gauge(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", [(labels, 1.0)]
        )

    def _http(self) -> Iterator[Metric]:
        rows = [
            ({"handler": handler, "method": method, "status": status}, float(count))
            for (handler, method, status), count in self._now.http.items()
        ] or [({"handler": HANDLERS[0][0], "method": "POST", "status": "2xx"}, 0.0)]
        yield self._counter("http_requests", "Total number of requests by method, status and handler.", rows)
        for side in ("request", "response"):
            family = SummaryMetricFamily(
                f"http_{side}_size_bytes", f"Content length of {side}s by handler.", labels=["handler"]
            )
            for handler, _method in HANDLERS:
                family.add_metric([handler], 0, 0.0)
                family.add_sample(f"{family.name}_created", {"handler": handler}, self._now.created)
            yield family
        yield _histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets.",
            {},
            Histogram(HTTP_HIGHR),
            self._now.created,
        )
        for handler, method in HANDLERS[:1]:
            labels = {"handler": handler, "method": method}
            yield _histogram(
                "http_request_duration_seconds",
                "Latency with few buckets.",
                labels,
                Histogram(HTTP_LOWR),
                self._now.created,
            )


def _histogram(
    name: str, text: str, labels: Mapping[str, str], histogram: Histogram, created: float
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), histogram.cumulative(), histogram.total)
    _created(family, labels, created)
    return family


def _created(family: Metric, labels: Mapping[str, str], created: float) -> None:
    """The `_created` gauge that the Python client prints beside every histogram."""
    family.add_sample(f"{family.name}_created", dict(labels), created)


def render(snapshot: Snapshot, stats: Stats) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(snapshot, stats))
    return generate_latest(registry)
