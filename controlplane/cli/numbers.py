"""Numbers on the command line: a range that also keeps out what is no number."""

from __future__ import annotations

import math
from typing import Any

import click

LONGEST_S = 30 * 86_400.0
"""The most seconds that a command takes for a duration: thirty days. Beyond it somebody slipped."""


class Range(click.FloatRange):
    """As click's, and neither NaN nor infinite: no comparison keeps a NaN out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as click does."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found
