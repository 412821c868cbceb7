"""NVIDIA's DCGM exporter: one series a GPU, joined to instances by the pod they run in.

Percent becomes a ratio. A value out of its range is dropped before anything is averaged:
unsupported fields print 9223372036854775794 (B-006), and single samples may be garbage (B-007).
Memory is in MiB, clocks in MHz. The join wants `namespace` and `pod` on the GPU's series
(Kubernetes mapping, `honor_labels: true`), and says nothing for a pod that two targets claim.
"""

from __future__ import annotations

from controlplane.adapters.engines.template import Helper, Level, Source, Span, Template
from controlplane.domain.readings import Signal

_JOIN = " * on (cluster, namespace, pod) group_left (pool, instance_id) $info"


def _valid(family: str, high: float) -> str:
    return f"(({family}{{$gpus,pod!=''}} >= 0) <= {high:g})"


def _steady(family: str, high: float) -> str:
    """Mean over the window of the possible values alone: a subquery, because a range
    selector would average the impossible ones too."""
    return f"avg_over_time({_valid(family, high)}[$window:$step])"


def _joined(aggregate: str, values: str) -> str:
    return f"{aggregate} by ($instance) ({values}{_JOIN})"


def _gpu(
    signal: Signal, promql: str, *families: str, span: Span = Span.NOW, high: float, quirks: str = ""
) -> Template:
    return Template(signal, Level.INSTANCE, Source.GPU, promql, families, span=span, high=high, quirks=quirks)


_UTIL = _steady("DCGM_FI_DEV_GPU_UTIL", 100) + " / 100"
_USED = _valid("DCGM_FI_DEV_FB_USED", 1e7)
_FREE = _valid("DCGM_FI_DEV_FB_FREE", 1e7)
_AGE = "(time() - timestamp({family}{{$gpus,pod!=''}}))"
_AGED = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_FB_USED")

TEMPLATES = (
    _gpu(
        Signal.GPU_UTILISATION,
        _joined("avg", _UTIL),
        "DCGM_FI_DEV_GPU_UTIL",
        span=Span.WINDOW,
        high=1.0,
        quirks="share of time in which any kernel ran: near 1 from two running requests on",
    ),
    _gpu(
        Signal.SM_ACTIVE,
        _joined("avg", _steady("DCGM_FI_PROF_SM_ACTIVE", 1)),
        "DCGM_FI_PROF_SM_ACTIVE",
        span=Span.WINDOW,
        high=1.0,
        quirks="off in the exporter's default list",
    ),
    _gpu(
        Signal.DRAM_ACTIVE,
        _joined("avg", _steady("DCGM_FI_PROF_DRAM_ACTIVE", 1)),
        "DCGM_FI_PROF_DRAM_ACTIVE",
        span=Span.WINDOW,
        high=1.0,
    ),
    _gpu(
        Signal.GPU_SPREAD,
        f"({_joined('max', _UTIL)} - {_joined('min', _UTIL)})"
        f" and on (cluster, pool, instance_id) {_joined('count', _UTIL)} > 1",
        "DCGM_FI_DEV_GPU_UTIL",
        span=Span.WINDOW,
        high=1.0,
        quirks="only where an instance has several GPUs",
    ),
    _gpu(
        Signal.GPU_MEMORY,
        f"sum by ($instance) ({_USED}{_JOIN}) / sum by ($instance) (({_USED} + {_FREE}){_JOIN})",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        high=1.0,
        quirks="reserved memory is in neither; near 1 by design, because engines take their KV cache at once",
    ),
    _gpu(
        Signal.SM_CLOCK,
        _joined("min", _valid("DCGM_FI_DEV_SM_CLOCK", 10000)),
        "DCGM_FI_DEV_SM_CLOCK",
        high=10000.0,
        quirks="the slowest card sets the pace of a tensor parallel instance",
    ),
    _gpu(
        Signal.GPU_TEMPERATURE,
        _joined("max", _valid("DCGM_FI_DEV_GPU_TEMP", 150)),
        "DCGM_FI_DEV_GPU_TEMP",
        high=150.0,
    ),
    _gpu(
        Signal.GPU_POWER,
        _joined("sum", _valid("DCGM_FI_DEV_POWER_USAGE", 5000)),
        "DCGM_FI_DEV_POWER_USAGE",
        high=5e5,
        quirks="summed: what the instance draws",
    ),
    _gpu(
        Signal.XID,
        _joined("max", _valid("DCGM_FI_DEV_XID_ERRORS", 10000)),
        "DCGM_FI_DEV_XID_ERRORS",
        high=10000.0,
        quirks="the LAST code seen, a gauge that stays after the error; 0 is none",
    ),
    Template(
        Helper.GPU_AGE,
        Level.INSTANCE,
        Source.GPU,
        _joined("max", "(" + " or ".join(_AGE.format(family=family) for family in _AGED) + ")"),
        _AGED,
    ),
    Template(
        Helper.GPU_REJECTED,
        Level.INSTANCE,
        Source.GPU,
        _joined(
            "count",
            "(DCGM_FI_DEV_GPU_UTIL{$gpus,pod!=''} < 0 or DCGM_FI_DEV_GPU_UTIL{$gpus,pod!=''} > 100)",
        ),
        ("DCGM_FI_DEV_GPU_UTIL",),
    ),
)
