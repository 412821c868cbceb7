"""From raw values and the evidence beside them to one reading: known, or missing for a cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.adapters.engines.template import Source, Span, Template
from controlplane.domain.readings import Cause, Known, Missing, Reading

_EDGE = 1e-9  # relative: a quantile that IS a bucket's bound came out of an interpolation


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one instance (or pool) besides the value itself.

    `now`: the cycle's instant, our clock; `age_s`: age of the raw sample by the server's clock,
    None where no raw sample is current. `count`: observations behind a quantile or mean in
    the window, None where unknown. `idle`: proven to have had nothing to do in the window.
    `absent`: what a missing sample means here, when nothing nearer explains it; `offered`:
    whether anybody is there who should say it.
    """

    now: float
    age_s: float | None
    absent: Cause = Cause.NOT_EXPORTED
    offered: bool = True
    claimed_twice: bool = False
    short_history: bool = False
    false_resets: bool = False
    rejected: bool = False
    idle: bool = False
    count: float | None = None
    min_samples: float = 0.0


def judge(template: Template, values: Sequence[float], evidence: Evidence) -> Reading:
    """The reading of one signal of one subject."""
    doubt = _doubt_of_sample(template, values, evidence)
    if doubt is None:
        doubt = _doubt_of_value(template, values[0], evidence)
    if doubt is not None:
        return doubt
    return Known(values[0], evidence.now - (evidence.age_s or 0.0))


def _doubt_of_sample(template: Template, values: Sequence[float], evidence: Evidence) -> Missing | None:
    windowed = template.span is not Span.NOW
    if len(values) > 1 or evidence.claimed_twice:
        return Missing(Cause.INCONSISTENT, "more than one series claims this reading")
    if evidence.age_s is None or not math.isfinite(evidence.age_s):
        return _doubt_of_age(evidence)
    if windowed and evidence.short_history:
        return Missing(Cause.WINDOW_TOO_SHORT)
    if windowed and evidence.false_resets:
        return Missing(Cause.INCONSISTENT, "a counter fell although the process did not restart")
    if not values:
        impossible = evidence.rejected and template.source is Source.GPU
        return Missing(Cause.OUT_OF_RANGE if impossible else evidence.absent)
    return None


def _doubt_of_age(evidence: Evidence) -> Missing:
    if evidence.age_s is not None:
        return Missing(Cause.NOT_FINITE, f"its age is {evidence.age_s}")
    if not evidence.offered:
        return Missing(evidence.absent)
    return Missing(Cause.UNSEEN if evidence.absent is Cause.NOT_EXPORTED else evidence.absent)


def _doubt_of_value(template: Template, value: float, evidence: Evidence) -> Missing | None:
    if math.isnan(value):
        return _nothing_observed(evidence)
    if math.isinf(value):
        return Missing(Cause.NOT_FINITE, str(value))
    if not template.low <= value <= template.high:
        return Missing(Cause.OUT_OF_RANGE, f"{value:g} is not in {template.low:g}..{template.high:g}")
    if template.edges is not None:
        return _doubt_of_quantile(template.edges, value, evidence)
    return None


def _nothing_observed(evidence: Evidence) -> Missing:
    """NaN of a mean or quantile: idle where that is proven (B-002), otherwise unknown (B-001)."""
    if evidence.idle and not evidence.count:
        return Missing(Cause.NO_TRAFFIC)
    if evidence.count == 0:
        return Missing(Cause.TOO_FEW, "nothing was finished in the window, although work was there")
    return Missing(Cause.NOT_FINITE, "nan")


def _doubt_of_quantile(edges: tuple[float, float], value: float, evidence: Evidence) -> Missing | None:
    first, last = edges
    if evidence.count is not None and not evidence.count >= evidence.min_samples:  # a NaN is not enough
        return Missing(Cause.TOO_FEW, f"{evidence.count:.1f} in the window, {evidence.min_samples:g} needed")
    if value <= first * (1 + _EDGE):
        return Missing(Cause.UNRESOLVABLE, f"inside the first bucket, at most {first:g}")
    if value >= last * (1 - _EDGE):
        return Missing(Cause.UNRESOLVABLE, f"beyond the last bucket, {last:g}")
    return None
