"""The engine-neutral series for the shipped defaults: window 5 m, scrape interval 15 s."""

from __future__ import annotations

from controlplane.adapters.engines.rules import recording_text
from controlplane.adapters.engines.template import Rendering

DEFAULT = Rendering(window_s=300.0, interval_s=15.0)


def text() -> str:
    """The rule file, the same as `trimtab rules render` without options."""
    return recording_text(DEFAULT)
