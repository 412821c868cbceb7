"""The templates as Prometheus recording rules, and as text for queries without rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from controlplane.adapters.engines import TEMPLATES
from controlplane.adapters.engines.template import Rendering, Template, by_series, duration

GROUP = "trimtab-recording"
SERIES_LABEL = "series"
"""In an inline query the label that says which series a sample would have been recorded as."""

HEADER = """\
# Trimtab's normalised series, one rule each: `trimtab rules render` writes this file.
# window {window}, scrape and evaluation interval {interval}.
"""


def recording_rules(rendering: Rendering) -> Mapping[str, Any]:
    """A rule file's content. One group: its rules run one after another at one instant."""
    return {
        "groups": [
            {
                "name": GROUP,
                "interval": duration(rendering.interval_s),
                "rules": [
                    {"record": series, "expr": rendering.expression(templates)}
                    for series, templates in by_series(TEMPLATES).items()
                ],
            }
        ]
    }


def recording_text(rendering: Rendering) -> str:
    """The rule file as YAML, with a comment that says for which window it was made."""
    header = HEADER.format(window=duration(rendering.window_s), interval=duration(rendering.interval_s))
    return header + yaml.safe_dump(recording_rules(rendering), sort_keys=False, width=200)


def inline(rendering: Rendering, templates: Iterable[Template]) -> str:
    """One query for many series, each told apart by the label `series`."""
    parts = by_series(templates).items()
    return "\nor ".join(
        f'label_replace({rendering.expression(spoken)}, "{SERIES_LABEL}", "{series}", "", "")'
        for series, spoken in parts
    )
