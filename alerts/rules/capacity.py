"""Capacity: GPUs that are counted wrongly, and GPUs that are not there.

Reads the controller's own gauges (`trimtab_gpus_unaccounted`, `trimtab_capacity_short_gpus`): only the
controller knows who holds what, and for whom it found no place.
"""

from __future__ import annotations

from alerts.lib import Alert

BRIDGED_COUNT = "45s"
"""A scrape or a cycle that fails does not end the alert. Shorter than it must hold, so that one wrong count
alone never pages."""

BRIDGED_SHORT = "2m"
"""Several capacity cycles; longer blindness has alerts of its own."""


def _last(gauge: str, by: str, span: str) -> str:
    """The newest known value; `max`, since a controller that moved leaves its old series behind."""
    return f"max by ({by}) (last_over_time({gauge}[{span}]))"


ALERTS = (
    Alert(
        "GpusUnaccounted",
        f"{_last('trimtab_gpus_unaccounted', 'cluster', BRIDGED_COUNT)} != 0",
        "The count of GPUs of {{ $labels.cluster }} is off by {{ $value }}: one is in two hands, or is held"
        " on a node that nobody knows.",
        held="1m",
    ),
    Alert(
        "CapacityShort",
        f"{_last('trimtab_capacity_short_gpus', 'cluster, pool', BRIDGED_SHORT)} > 0",
        "Pool {{ $labels.pool }} of {{ $labels.cluster }} has found no place for {{ $value }} of the GPUs"
        " that it asks for, for five minutes: buy or free {{ $value }}.",
        severity="warning",
        held="5m",
    ),
)
