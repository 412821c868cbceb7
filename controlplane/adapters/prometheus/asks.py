"""Which series a cycle asks for, and how few queries carry them.

One query a source of data: engines, GPUs, pools, gateways. Each brings the ages of its own raw
samples along, so that a query that fails loses its own signals and no others (B-053), and the
number of queries is the same for 10 instances and for 10,000. A weights cycle is one query:
four signals, the age, and evidence that is sparse (a sample only where something is wrong).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.adapters.engines import TEMPLATES
from controlplane.adapters.engines.escape import any_of, matcher, quoted
from controlplane.adapters.engines.rules import SERIES_LABEL, inline
from controlplane.adapters.engines.template import Helper, Level, Rendering, Source, Template
from controlplane.domain.ids import CycleKind
from controlplane.domain.readings import Signal

WEIGHTS_SIGNALS = (Signal.RUNNING, Signal.RUNNING_MEAN, Signal.STEP_TIME, Signal.PROGRESS)

AGES = frozenset({Helper.TARGET_AGE, Helper.ENGINE_AGE, Helper.GPU_AGE, Helper.GATEWAY_AGE, Helper.DOOR_AGE})

_WEIGHTS_HELPERS = (Helper.ENGINE_AGE, Helper.DUPLICATE_TARGETS, Helper.SHORT_HISTORY, Helper.FALSE_RESETS)


class Mode(StrEnum):
    """Where the translation into our vocabulary happens."""

    RECORDED = "recorded"  # our recording rules are loaded there
    INLINE = "inline"  # nothing of ours is: the templates are sent as queries


@dataclass(frozen=True, slots=True)
class Ask:
    """One query: its name in reports, and the templates whose series it brings."""

    name: str
    templates: tuple[Template, ...]

    def promql(self, mode: Mode, rendering: Rendering) -> str:
        """The query's text."""
        if mode is Mode.INLINE:
            return inline(rendering, self.templates)
        return _recorded(self.templates, rendering)


def asks(kind: CycleKind) -> tuple[Ask, ...]:
    """The queries of a cycle of this kind."""
    return _BY_KIND[kind]


def _recorded(templates: Iterable[Template], rendering: Rendering) -> str:
    ages = dict.fromkeys(t.series for t in templates if t.name in AGES)
    alone = dict.fromkeys(t.series for t in templates if t.name is Helper.WINDOW)
    others = dict.fromkeys(t.series for t in templates if t.series not in ages | alone)
    cluster = () if rendering.cluster is None else (matcher("cluster", "=", rendering.cluster),)
    # The rules' own window is no cluster's: of all series it alone has no such label.
    parts = [_names(others, cluster), *alone, *(_grown(series, cluster) for series in ages)]
    return "\nor ".join(parts)


def _names(series: Iterable[str], cluster: tuple[str, ...]) -> str:
    return "{" + ",".join((matcher("__name__", "=~", any_of(series)), *cluster)) + "}"


def _grown(series: str, cluster: tuple[str, ...]) -> str:
    """A recorded age plus the time since it was recorded: rules that stand still age too."""
    chosen = series + "{" + ",".join(cluster) + "}"
    grown = f"{chosen} + (time() - timestamp({chosen}))"
    return f'label_replace({grown}, "{SERIES_LABEL}", {quoted(series)}, "", "")'


def _of(level: Level, *sources: Source) -> tuple[Template, ...]:
    return tuple(t for t in TEMPLATES if t.level is level and t.source in sources)


def _weights() -> tuple[Template, ...]:
    wanted: frozenset[object] = frozenset({*WEIGHTS_SIGNALS, *_WEIGHTS_HELPERS})
    chosen = (t for t in TEMPLATES if t.level is Level.INSTANCE and t.name in wanted)
    return tuple(chosen)


_BY_KIND: Mapping[CycleKind, tuple[Ask, ...]] = {
    CycleKind.WEIGHTS: (Ask("engines", _weights()),),
    CycleKind.CAPACITY: (
        Ask("engines", _of(Level.INSTANCE, Source.TARGET, Source.ENGINE)),
        Ask("gpus", _of(Level.INSTANCE, Source.GPU)),
        Ask("pools", _of(Level.POOL, Source.ENGINE) + _of(Level.RULES, Source.TARGET)),
        Ask("gateways", _of(Level.POOL, Source.GATEWAY, Source.DOOR) + _of(Level.RULES, Source.DOOR)),
    ),
}
