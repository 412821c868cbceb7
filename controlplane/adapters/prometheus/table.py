"""Vectors, sorted by series and by whom they are about. Nothing is judged here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.adapters.engines.rules import SERIES_LABEL
from controlplane.adapters.engines.template import Helper, Level, Template
from controlplane.adapters.prometheus.envelope import Sample
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.domain.readings import PoolSignal, Signal

Labels = Mapping[str, str]
Identify = Callable[[Labels], InstanceId | None]
"""Whom a series of an instance is about; None: nobody we know."""

Name = Signal | PoolSignal | Helper
Rows = defaultdict[str, list[float]]


def own_label(labels: Labels) -> InstanceId | None:
    """The instance as service discovery named it: the label `instance_id`."""
    return InstanceId(labels["instance_id"]) if labels.get("instance_id") else None


@dataclass
class Table:
    """What one query brought, by series name, then by instance id or pool name.

    A list of values: more than one means that several series claim the same reading.
    `buckets`: (upper bound, rate) by pool. `pool_of`: the pool an instance's series bear.
    """

    rows: defaultdict[str, Rows] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    buckets: defaultdict[PoolName, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    pool_of: dict[InstanceId, PoolName] = field(default_factory=dict)
    strangers: int = 0

    def pools_seen(self) -> bool:
        """Whether any series of a pool came."""
        return any(series.startswith(f"trimtab:{Level.POOL}:") for series in self.rows) or bool(self.buckets)

    def values(self, template: Template, subject: str) -> list[float]:
        """Everything that was said of `subject` in the template's series."""
        return self.said(template.series, subject)

    def said(self, series: str, subject: str) -> list[float]:
        """The same, by the series' name."""
        rows = self.rows.get(series)
        return [] if rows is None else rows.get(subject, [])


def sort(samples: Iterable[Sample], templates: Iterable[Template], identify: Identify) -> Table:
    """Samples of one query as a table; series that were not asked for are left out."""
    known = {template.series: template for template in templates}
    table = Table()
    for sample in samples:
        series = sample.labels.get("__name__") or sample.labels.get(SERIES_LABEL, "")
        template = known.get(series)
        if template is not None:
            _place(table, template, sample, identify)
    return table


def _place(table: Table, template: Template, sample: Sample, identify: Identify) -> None:
    if template.name is Helper.OUTPUT_BUCKET:
        _place_bucket(table, sample)
    elif template.level is Level.POOL:
        table.rows[template.series][sample.labels.get("pool", "")].append(sample.value)
    elif template.level is Level.RULES:
        table.rows[template.series][""].append(sample.value)
    else:
        _place_instance(table, template, sample, identify)


def _place_instance(table: Table, template: Template, sample: Sample, identify: Identify) -> None:
    instance = identify(sample.labels)
    if instance is None:
        table.strangers += 1
        return
    table.rows[template.series][instance].append(sample.value)
    table.pool_of[instance] = PoolName(sample.labels.get("pool", ""))


def _place_bucket(table: Table, sample: Sample) -> None:
    try:
        bound = float(sample.labels.get("le", ""))
    except ValueError:
        return
    table.buckets[PoolName(sample.labels.get("pool", ""))].append((bound, sample.value))
