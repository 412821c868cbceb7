"""Hypothesis strategies for observations: a healthy pool with anything wrong in it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from controlplane.domain.fleet import Phase
from controlplane.domain.ids import CycleKind
from controlplane.domain.observation import Observation
from controlplane.domain.readings import Cause, Missing, PoolSignal, Reading, Signal
from controlplane.domain.state import PoolState, Want
from tests.builders import NOW, gateway, instances, server, steady_pool

FAILURES = (Cause.UNSEEN, Cause.STALE, Cause.EMPTY, Cause.QUERY_FAILED, Cause.QUERY_TIMEOUT, Cause.PARTIAL)
"""Causes that say that something went wrong, and nothing about the instance."""

BUSY_SIGNALS = (Signal.RUNNING, Signal.WAITING, Signal.GENERATION_TOKENS)
POOL_SIGNALS = (
    PoolSignal.ARRIVALS,
    PoolSignal.GATEWAY_QUEUE,
    PoolSignal.TTFT_P95,
    PoolSignal.CANCELLED_RATIO,
    PoolSignal.OUTPUT_MEAN,
)

missing = st.sampled_from(FAILURES).map(Missing)


@st.composite
def observations(draw: st.DrawFn, kind: CycleKind | None = None) -> Observation:
    """A pool of 1 to 8 instances at any load and speed, in any phase, partly unseen."""
    count = draw(st.integers(1, 8))
    running = draw(st.lists(st.floats(0.0, 64.0), min_size=count, max_size=count))
    speeds = draw(st.lists(st.floats(0.3, 2.0), min_size=count, max_size=count))
    phases = draw(st.lists(st.sampled_from(Phase), min_size=count, max_size=count))
    members = [replace(each, phase=phase) for each, phase in zip(instances(count), phases, strict=True)]
    weights = draw(st.lists(st.integers(1, 256), min_size=count, max_size=count))
    built = steady_pool(
        running=[round(each, 3) for each in running],
        speed=speeds,
        kind=kind or draw(st.sampled_from(CycleKind)),
        queue=draw(st.sampled_from([0.0, 0.0, 3.0])),
        members=members,
        gateways={
            "edge": gateway([server(each, weight) for each, weight in zip(members, weights, strict=True)])
        },
    )
    return draw(partly_unseen(built))


@st.composite
def partly_unseen(draw: st.DrawFn, observation: Observation) -> Observation:
    """Some rows and some pool readings of an observation gone, for causes of failure."""
    rows = draw(st.sets(st.integers(0, len(observation.instances) - 1)))
    cause = draw(st.sampled_from(FAILURES))
    signals = {
        signal: type(column).of(
            [Missing(cause) if row in rows else column[row] for row in range(len(column))]
        )
        for signal, column in observation.signals.items()
    }
    lost = draw(st.sets(st.sampled_from(POOL_SIGNALS)))
    pools = {
        pool: {signal: _lose(signal in lost, reading, cause) for signal, reading in readings.items()}
        for pool, readings in observation.pools.items()
    }
    return replace(observation, signals=signals, pools=pools)


def _lose(gone: bool, reading: Reading, cause: Cause) -> Reading:
    return Missing(cause) if gone else reading


SETTLED = PoolState(wants=(Want(NOW - 400.0, 1), Want(NOW - 15.0, 1)), seen_since=NOW - 4000.0)
"""A pool watched for longer than its stabilisation window that has wanted next to nothing."""
