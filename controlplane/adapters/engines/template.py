"""One template per signal: what a raw exporter says, as PromQL with its window left open.

A template is plain data. `rules.py` renders it as a recording rule, `inline` as the same
expression for a Prometheus that has no rules of ours; tests hold the two equal.

Placeholders (`string.Template`; a literal dollar is `$$`):
`$engines`, `$gpus`, `$gateways`, `$doors` label matchers of the four jobs; `$window` the span of rates,
means and quantiles; `$four` four scrape intervals; `$step` one scrape interval;
`$instance` and `$pool` the labels to aggregate by; `$info` a series per instance with the
labels `cluster, namespace, pod, pool, instance_id`, to join GPU series to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from string import Template as Text

from controlplane.adapters.engines.escape import matcher
from controlplane.domain.readings import UNITS, PoolSignal, Signal

SCRAPES_IN_WINDOW = 4
"""A rate over fewer scrapes says more about the scrapes than about the engine."""

INFO = (
    "(group by (cluster, namespace, pod, pool, instance_id) (up{$engines,pod!=''})"
    " unless on (cluster, namespace, pod) count by (cluster, namespace, pod)"
    " (group by (cluster, namespace, pod, pool, instance_id) (up{$engines,pod!=''})) > 1)"
)
"""Two targets that claim one pod would make the join fail for the whole fleet, so such a pod has none."""


class Source(StrEnum):
    """Who exports a family, and so whose raw sample's age a reading has."""

    TARGET = "target"  # Prometheus itself: `up` exists whatever the engine answers
    ENGINE = "engine"
    GPU = "gpu"
    GATEWAY = "gateway"
    DOOR = "door"  # our own gateway exporter, where there is one


class Helper(StrEnum):
    """Series that are no signal: ages, and the evidence by which readings are judged."""

    TARGET_AGE = "target_age"
    ENGINE_AGE = "engine_age"
    GPU_AGE = "gpu_age"
    GATEWAY_AGE = "gateway_age"
    DOOR_AGE = "door_age"
    DOORS = "doors"  # how many gateway exporters Prometheus is told to scrape, whether or not they answer
    DOOR_TTFT_COUNT = "door_ttft_count"
    DOOR_E2E_COUNT = "door_e2e_count"
    DUPLICATE_TARGETS = "duplicate_targets"  # only where more than one target claims the instance
    SHORT_HISTORY = "short_history"  # scrapes in the window, only where fewer than four
    FALSE_RESETS = "false_resets"  # counters that fell while the process did not restart
    GPU_REJECTED = "gpu_rejected"  # GPU readings out of range, only where there are any
    TTFT_COUNT = "ttft_count"  # observations in the window: what a quantile stands on
    TPOT_COUNT = "tpot_count"
    E2E_COUNT = "e2e_count"
    OUTPUT_BUCKET = "output_bucket"  # lengths of answers, cumulative by `le`, a second
    WINDOW = "rules_window"  # the window the rules were rendered for


HELPER_UNITS: Mapping[Helper, str] = {
    Helper.TARGET_AGE: "seconds",
    Helper.ENGINE_AGE: "seconds",
    Helper.GPU_AGE: "seconds",
    Helper.GATEWAY_AGE: "seconds",
    Helper.DOOR_AGE: "seconds",
    Helper.DOORS: "count",
    Helper.DOOR_TTFT_COUNT: "requests",
    Helper.DOOR_E2E_COUNT: "requests",
    Helper.DUPLICATE_TARGETS: "count",
    Helper.SHORT_HISTORY: "count",
    Helper.FALSE_RESETS: "count",
    Helper.GPU_REJECTED: "count",
    Helper.TTFT_COUNT: "requests",
    Helper.TPOT_COUNT: "requests",
    Helper.E2E_COUNT: "requests",
    Helper.OUTPUT_BUCKET: "per_second",
    Helper.WINDOW: "seconds",
}


class Span(StrEnum):
    """How far back an expression looks."""

    NOW = "now"
    WINDOW = "window"
    FOUR_SCRAPES = "four_scrapes"


class Level(StrEnum):
    """What one sample of the series is about."""

    INSTANCE = "instance"
    POOL = "pool"
    RULES = "rules"  # one sample for all


@dataclass(frozen=True, slots=True)
class Template:
    """One signal (or helper) in one exporter's dialect.

    `low` and `high` bound a possible value (units: `UNITS`); for rates `high` is a physical
    ceiling, so that a counter that falls by accident cannot order GPUs. `edges`: first and
    last finite bucket bound of the histogram behind a quantile; at or beyond either the
    quantile is unresolvable. `families`: raw names read. `quirks`: what the next reader
    should know.
    """

    name: Signal | PoolSignal | Helper
    level: Level
    source: Source
    promql: str
    families: tuple[str, ...]
    span: Span = Span.NOW
    low: float = 0.0
    high: float = float("inf")
    edges: tuple[float, float] | None = None
    counted_by: Helper | None = None
    quirks: str = ""

    @property
    def series(self) -> str:
        """The recorded name, `trimtab:<level>:<signal>_<unit>`: the key of the normalised vocabulary."""
        return series_name(self.name, self.level)


@cache
def series_name(name: Signal | PoolSignal | Helper, level: Level) -> str:
    """`trimtab:<level>:<signal>_<unit>`."""
    unit = HELPER_UNITS[name] if isinstance(name, Helper) else UNITS[name]
    return f"trimtab:{level}:{name}_{unit}"


@dataclass(frozen=True, slots=True)
class Rendering:
    """What fills the placeholders: spans in seconds, job names, and a cluster to keep to.

    `cluster` None: all clusters, as rules do. Raises ValueError where the window holds
    fewer than four scrapes.
    """

    window_s: float
    interval_s: float
    cluster: str | None = None
    engines_job: str = "engines"
    gpus_job: str = "gpus"
    gateways_job: str = "gateways"
    doors_job: str = "doors"

    def __post_init__(self) -> None:
        if not 0 < self.interval_s * SCRAPES_IN_WINDOW <= self.window_s:
            least = duration(self.interval_s * SCRAPES_IN_WINDOW)
            raise ValueError(
                f"window {duration(self.window_s)} with a scrape interval of {duration(self.interval_s)}:"
                f" a window holds at least {SCRAPES_IN_WINDOW} scrapes, so at least {least}"
            )

    def expression(self, templates: Iterable[Template]) -> str:
        """One expression for templates of one series, dialect by dialect."""
        spoken = [self._fill(template.promql) for template in templates]
        return spoken[0] if len(spoken) == 1 else " or ".join(f"({text})" for text in spoken)

    def _fill(self, promql: str) -> str:
        return Text(promql.replace("$info", INFO)).substitute(
            engines=self._matchers(self.engines_job),
            gpus=self._matchers(self.gpus_job),
            gateways=self._matchers(self.gateways_job),
            doors=self._matchers(self.doors_job),
            window=duration(self.window_s),
            window_s=repr(float(self.window_s)),
            four=duration(self.interval_s * SCRAPES_IN_WINDOW),
            step=duration(self.interval_s),
            instance="cluster, pool, instance_id",
            pool="cluster, pool",
        )

    def _matchers(self, job: str) -> str:
        clusters = () if self.cluster is None else (matcher("cluster", "=", self.cluster),)
        return ",".join((matcher("job", "=", job), *clusters))


def duration(seconds: float) -> str:
    """A PromQL duration, exact to the millisecond: `60s`, `1500ms`."""
    millis = round(seconds * 1000)
    return f"{millis}ms" if millis % 1000 else f"{millis // 1000}s"


def by_series(templates: Iterable[Template]) -> Mapping[str, Sequence[Template]]:
    """Templates grouped by the series they fill, in the order of first mention."""
    grouped: dict[str, list[Template]] = {}
    for template in templates:
        grouped.setdefault(template.series, []).append(template)
    return grouped
