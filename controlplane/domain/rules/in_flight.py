"""Requests that a gateway counts and no engine knows of: believed for a grace period, then not.

The engine-side count wins in the end; what waits in the gateway's queue stays demand (rule `queue`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Step, Vote
from controlplane.domain.readings import Known, PoolSignal, Signal
from controlplane.domain.rules.base import CapacityView, Rule, figure, seen

ID = "in_flight"
TOLERANCE = 2.0
"""Requests between gateway and engine at any instant, apart from a fifth of the count."""


class Code(StrEnum):
    """Why."""

    AGREES = "in_flight_agrees"
    UNCONFIRMED = "in_flight_unconfirmed"
    ENGINES_WIN = "in_flight_engines_win"
    UNKNOWN = "in_flight_unknown"


WORDS: Mapping[str, str] = {
    Code.AGREES: "gateway and engines count the same requests",
    Code.UNCONFIRMED: "the gateway counts {gateway_in_flight}, the engines {confirmed}, for {since} so far",
    Code.ENGINES_WIN: "no engine has confirmed the gateway's {gateway_in_flight} for {since}",
    Code.UNKNOWN: "in-flight counts can't be compared",
}


def unconfirmed_since(view: CapacityView) -> float | None:
    """Since when the gateway has counted more than the engines know; None while they agree or
    cannot be compared."""
    gateway, confirmed = view.pool.reading(PoolSignal.GATEWAY_IN_FLIGHT), _confirmed(view)
    if not isinstance(gateway, Known) or confirmed is None:
        return None
    if gateway.value <= confirmed + TOLERANCE + 0.2 * gateway.value:
        return None
    since = view.pool.state.unconfirmed_since
    return view.pool.now if since is None else since


def propose(view: CapacityView, _so_far: Merge) -> Step:
    """Block shrinking during the grace period (the evidence window), abstain after it."""
    gateway, confirmed, since = (
        view.pool.reading(PoolSignal.GATEWAY_IN_FLIGHT),
        _confirmed(view),
        unconfirmed_since(view),
    )
    lasted = None if since is None else view.pool.now - since
    inputs = (
        seen(PoolSignal.GATEWAY_IN_FLIGHT, gateway, view.pool.now),
        figure("confirmed", confirmed, "requests"),
        figure("since", lasted, "seconds"),
    )
    if lasted is None:
        known = isinstance(gateway, Known) and confirmed is not None
        return Step(ID, Code.AGREES if known else Code.UNKNOWN, Vote.ABSTAIN, inputs)
    if lasted < view.pool.policy.evidence.window_s:
        return Step(ID, Code.UNCONFIRMED, Vote.BLOCK, inputs)
    return Step(ID, Code.ENGINES_WIN, Vote.ABSTAIN, inputs)


def _confirmed(view: CapacityView) -> float | None:
    """Requests that the engines know of, running and waiting; None where not all of them say."""
    columns = (view.pool.column(Signal.RUNNING), view.pool.column(Signal.WAITING))
    rows = view.pool.traffic_rows
    if not all(bool(np.all(column.ok[rows])) for column in columns):
        return None
    return float(sum(np.sum(column.value[rows]) for column in columns))


RULE = Rule(ID, Code, WORDS, propose)
