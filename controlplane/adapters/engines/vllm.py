"""vLLM's dialect. Names as exported by 0.32; older ones follow after `or` where that is harmless.

Every selector is summed over the labels `engine` and `model_name`: one process may run
several engine cores (data parallel), and they are one instance to everybody outside.
"""

from __future__ import annotations

from controlplane.adapters.engines.template import Helper, Level, Source, Span, Template
from controlplane.domain.readings import PoolSignal, Signal

TTFT_EDGES = (0.001, 2560.0)
TPOT_EDGES = (0.01, 80.0)
E2E_EDGES = (0.3, 7680.0)
"""First and last finite bucket bounds in vLLM 0.32 (seconds)."""

_TOKENS_CEILING = 1e6  # tokens a second of one instance; prompts served from the cache count too
_REQUESTS_CEILING = 1e4  # requests a second of one instance

_DONE = 'finished_reason!~"abort|error"'
_ITL = "inter_token_latency_seconds"
_OLD_ITL = "time_per_output_token_seconds"
_TPOT = "request_time_per_output_token_seconds"


def _now(
    signal: Signal, promql: str, *families: str, high: float = float("inf"), quirks: str = ""
) -> Template:
    return Template(signal, Level.INSTANCE, Source.ENGINE, promql, families, high=high, quirks=quirks)


def _rate(signal: Signal, promql: str, *families: str, high: float, quirks: str = "") -> Template:
    return Template(
        signal, Level.INSTANCE, Source.ENGINE, promql, families, span=Span.WINDOW, high=high, quirks=quirks
    )


def _sum_rate(level: Level, selector: str) -> str:
    return f"sum by (${level}) (rate({selector}[$window]))"


def _mean(level: Level, *histograms: str) -> str:
    """Mean of a histogram over the window: NaN where nothing was observed."""
    over, under = (
        " or ".join(f"rate(vllm:{name}_{part}{{$engines}}[$window])" for name in histograms)
        for part in ("sum", "count")
    )
    return f"sum by (${level}) ({over}) / sum by (${level}) ({under})"


def _p95(level: Level, *histograms: str) -> str:
    buckets = " or ".join(f"rate(vllm:{name}_bucket{{$engines}}[$window])" for name in histograms)
    return f"histogram_quantile(0.95, sum by (${level}, le) ({buckets}))"


def _parts(*histograms: str) -> tuple[str, ...]:
    return tuple(f"vllm:{name}_{part}" for name in histograms for part in ("bucket", "sum", "count"))


def _quantile(
    signal: Signal | PoolSignal,
    level: Level,
    edges: tuple[float, float],
    counted_by: Helper,
    *histograms: str,
) -> Template:
    return Template(
        signal,
        level,
        Source.ENGINE,
        _p95(level, *histograms),
        _parts(*histograms),
        span=Span.WINDOW,
        edges=edges,
        counted_by=counted_by,
        quirks="Prometheus repairs falling buckets itself; in +Inf it answers the last finite bound",
    )


def _count(helper: Helper, level: Level, *histograms: str) -> Template:
    selector = " or ".join(f"increase(vllm:{name}_count{{$engines}}[$window])" for name in histograms)
    return Template(
        helper,
        level,
        Source.ENGINE,
        f"sum by (${level}) ({selector})",
        tuple(f"vllm:{name}_count" for name in histograms),
        span=Span.WINDOW,
    )


_TOKEN_RATES = " + ".join(
    f"sum by ($instance) (rate(vllm:{name}_tokens_total{{$engines}}[$four]))"
    for name in ("prompt", "generation")
)

INSTANCE = (
    Template(
        Signal.UP,
        Level.INSTANCE,
        Source.TARGET,
        "max by ($instance) (up{$engines})",
        ("up",),
        high=1.0,
        quirks="0 on a failed scrape, which also ends every series of the engine at once",
    ),
    _now(
        Signal.RUNNING,
        "sum by ($instance) (vllm:num_requests_running{$engines})",
        "vllm:num_requests_running",
        high=1e5,
    ),
    _now(
        Signal.WAITING,
        "sum by ($instance) (vllm:num_requests_waiting{$engines})",
        "vllm:num_requests_waiting",
        high=1e6,
    ),
    _now(
        Signal.KV_CACHE,
        "max by ($instance) (vllm:kv_cache_usage_perc{$engines} or vllm:gpu_cache_usage_perc{$engines})",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        high=1.0,
        quirks="0..1 although the name says 'perc' (B-009); of several engine cores the fullest binds",
    ),
    _rate(
        Signal.RUNNING_MEAN,
        "sum by ($instance) (avg_over_time(vllm:num_requests_running{$engines}[$window]))",
        "vllm:num_requests_running",
        high=1e5,
    ),
    _rate(
        Signal.STEP_TIME,
        _mean(Level.INSTANCE, _ITL, _OLD_ITL),
        *_parts(_ITL, _OLD_ITL),
        high=600.0,
        quirks="NaN without tokens; before 0.11 the same histogram was called time_per_output_token",
    ),
    _quantile(
        Signal.TTFT_P95,
        Level.INSTANCE,
        TTFT_EDGES,
        Helper.TTFT_COUNT,
        "time_to_first_token_seconds",
    ),
    _quantile(Signal.E2E_P95, Level.INSTANCE, E2E_EDGES, Helper.E2E_COUNT, "e2e_request_latency_seconds"),
    _rate(
        Signal.COMPLETIONS,
        _sum_rate(Level.INSTANCE, f"vllm:request_success_total{{$engines,{_DONE}}}"),
        "vllm:request_success_total",
        high=_REQUESTS_CEILING,
        quirks="the name says success, the label finished_reason also says abort and error",
    ),
    _rate(
        Signal.ERRORS,
        _sum_rate(Level.INSTANCE, 'vllm:request_success_total{$engines,finished_reason="error"}'),
        "vllm:request_success_total",
        high=_REQUESTS_CEILING,
    ),
    _rate(
        Signal.PREEMPTIONS,
        _sum_rate(Level.INSTANCE, "vllm:num_preemptions_total{$engines}"),
        "vllm:num_preemptions_total",
        high=_REQUESTS_CEILING,
    ),
    _rate(
        Signal.PROMPT_TOKENS,
        _sum_rate(Level.INSTANCE, "vllm:prompt_tokens_total{$engines}"),
        "vllm:prompt_tokens_total",
        high=_TOKENS_CEILING,
    ),
    _rate(
        Signal.GENERATION_TOKENS,
        _sum_rate(Level.INSTANCE, "vllm:generation_tokens_total{$engines}"),
        "vllm:generation_tokens_total",
        high=_TOKENS_CEILING,
    ),
    _rate(
        Signal.CPU,
        _sum_rate(Level.INSTANCE, "process_cpu_seconds_total{$engines}"),
        "process_cpu_seconds_total",
        high=1024.0,
        quirks="the API server's process, not the engine core's; above 1 on several cores",
    ),
    Template(
        Signal.PROGRESS,
        Level.INSTANCE,
        Source.ENGINE,
        f"({_TOKEN_RATES}) + (sum by ($instance) (rate(process_cpu_seconds_total{{$engines}}[$four]))"
        f" or 0 * ({_TOKEN_RATES}))",
        ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "process_cpu_seconds_total"),
        span=Span.FOUR_SCRAPES,
        high=3 * _TOKENS_CEILING,
        quirks="tokens and seconds are added: only 0 or not 0 means something",
    ),
)

POOL = (
    _quantile(PoolSignal.TTFT_P95, Level.POOL, TTFT_EDGES, Helper.TTFT_COUNT, "time_to_first_token_seconds"),
    _quantile(PoolSignal.TPOT_P95, Level.POOL, TPOT_EDGES, Helper.TPOT_COUNT, _TPOT, _OLD_ITL),
    _quantile(PoolSignal.E2E_P95, Level.POOL, E2E_EDGES, Helper.E2E_COUNT, "e2e_request_latency_seconds"),
    Template(
        PoolSignal.COMPLETIONS,
        Level.POOL,
        Source.ENGINE,
        _sum_rate(Level.POOL, f"vllm:request_success_total{{$engines,{_DONE}}}"),
        ("vllm:request_success_total",),
        span=Span.WINDOW,
        high=1e6,
    ),
    Template(
        PoolSignal.PROMPT_MEAN,
        Level.POOL,
        Source.ENGINE,
        _mean(Level.POOL, "request_prompt_tokens"),
        ("vllm:request_prompt_tokens_sum", "vllm:request_prompt_tokens_count"),
        span=Span.WINDOW,
        high=1e8,
        counted_by=Helper.E2E_COUNT,
    ),
    Template(
        PoolSignal.OUTPUT_MEAN,
        Level.POOL,
        Source.ENGINE,
        _mean(Level.POOL, "request_generation_tokens"),
        ("vllm:request_generation_tokens_sum", "vllm:request_generation_tokens_count"),
        span=Span.WINDOW,
        high=1e8,
        counted_by=Helper.E2E_COUNT,
    ),
)

HELPERS = (
    Template(
        Helper.TARGET_AGE,
        Level.INSTANCE,
        Source.TARGET,
        "max by ($instance) (time() - timestamp(up{$engines}))",
        ("up",),
    ),
    Template(
        Helper.ENGINE_AGE,
        Level.INSTANCE,
        Source.ENGINE,
        "max by ($instance) (time() - timestamp(vllm:num_requests_running{$engines}))",
        ("vllm:num_requests_running",),
        quirks="timestamp() of anything but a bare selector answers the time of evaluation",
    ),
    Template(
        Helper.DUPLICATE_TARGETS,
        Level.INSTANCE,
        Source.TARGET,
        "count by ($instance) (up{$engines}) > 1",
        ("up",),
    ),
    Template(
        Helper.SHORT_HISTORY,
        Level.INSTANCE,
        Source.ENGINE,
        "max by ($instance) (count_over_time(vllm:num_requests_running{$engines}[$window])) < 4",
        ("vllm:num_requests_running",),
        span=Span.WINDOW,
    ),
    Template(
        Helper.FALSE_RESETS,
        Level.INSTANCE,
        Source.ENGINE,
        "(sum by ($instance) (resets(vllm:prompt_tokens_total{$engines}[$window]))"
        " + sum by ($instance) (resets(vllm:generation_tokens_total{$engines}[$window])) > 0)"
        " unless on (cluster, pool, instance_id)"
        " (max by ($instance) (changes(process_start_time_seconds{$engines}[$window])) > 0)",
        ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "process_start_time_seconds"),
        span=Span.WINDOW,
        quirks="a counter that falls without a restart: two sources, or late samples (B-044)",
    ),
    Template(
        Helper.ENGINE_AGE,
        Level.POOL,
        Source.ENGINE,
        "quantile by ($pool) (0.5, time() - timestamp(vllm:num_requests_running{$engines}))",
        ("vllm:num_requests_running",),
        quirks="half of the pool is at least this fresh; one late instance does not age the pool's sums",
    ),
    _count(Helper.TTFT_COUNT, Level.INSTANCE, "time_to_first_token_seconds"),
    _count(Helper.E2E_COUNT, Level.INSTANCE, "e2e_request_latency_seconds"),
    _count(Helper.TTFT_COUNT, Level.POOL, "time_to_first_token_seconds"),
    _count(Helper.TPOT_COUNT, Level.POOL, _TPOT, _OLD_ITL),
    _count(Helper.E2E_COUNT, Level.POOL, "e2e_request_latency_seconds"),
    Template(
        Helper.OUTPUT_BUCKET,
        Level.POOL,
        Source.ENGINE,
        "sum by ($pool, le) (rate(vllm:request_generation_tokens_bucket{$engines}[$window]))",
        ("vllm:request_generation_tokens_bucket",),
        span=Span.WINDOW,
        quirks="bounds go by 1, 2, 5 up to max_model_len; E[L^2] is computed from them (moments.py)",
    ),
    Template(
        Helper.WINDOW,
        Level.RULES,
        Source.TARGET,
        "vector($window_s)",
        (),
    ),
)

TEMPLATES = (*INSTANCE, *POOL, *HELPERS)
