"""Numbers on the command line: a range that also keeps out what is no number."""

from __future__ import annotations

import math
import re
from typing import Any

import click

LONGEST_S = 30 * 86_400.0
"""The most seconds that a command takes for a duration: thirty days. Beyond it somebody slipped."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"([0-9]{1,7})([smhd])", re.ASCII)


class Range(click.FloatRange):
    """As click's, and neither NaN nor infinite: no comparison keeps a NaN out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as click does."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


class Span(click.ParamType[float]):
    """A span of time such as `90s`, `15m`, `2h` or `3d`, up to thirty days; seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails as click does, naming what is allowed."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
        if not 0.0 < seconds <= LONGEST_S:
            self.fail(f"{value!r}; allowed: 1s to 30d, such as 90s, 15m, 2h or 3d", param, ctx)
        return seconds
