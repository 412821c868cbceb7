"""The weight law in a loop with a noisy pool: it finds the slow one, lets it back, and rests.

The pool is a fluid: each instance holds its weight's share of the requests (a busy gateway with
least connections), steps at its true speed, and ends requests by chance. The controller's profile
is wrong by up to a fifth in every coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from controlplane.domain.decide import decide
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import CycleKind
from controlplane.domain.profile import step_ms
from controlplane.domain.readings import Floats, Signal
from controlplane.domain.state import PoolState, State
from tests.builders import (
    MIX,
    NO_FORECAST,
    NOW,
    gateway,
    instances,
    policies,
    pool_policy,
    profile,
    server,
    steady_pool,
)
from tests.domain.stories import POOL, applied

COUNT, CADENCE_S, SLOW, LIAR = 12, 5.0, 3, 5
WRONG = policies(pool_policy(), profiles=[profile(d0_ms=7.7, d1_ms=0.0096, d2_ms=0.000036, p1_ms=0.0149)])


@dataclass
class Pool:
    """A pool behind one gateway. `claims`: what an engine says its speed is, by its true one."""

    in_flight: float
    chance: np.random.Generator
    speed: Floats = field(default_factory=lambda: np.ones(COUNT))
    claims: Floats = field(default_factory=lambda: np.ones(COUNT))
    state: State = field(default_factory=lambda: State({POOL: PoolState(mix=MIX)}))
    view: GatewayView = field(default_factory=lambda: gateway([server(each) for each in instances(COUNT)]))
    ended: Floats = field(default_factory=lambda: np.zeros(COUNT))
    cycle: int = 0

    @property
    def weights(self) -> Floats:
        return np.array([each.weight for each in self.view.backends[0].servers], dtype=np.float64)

    def run(self, cycles: int) -> int:
        """Some cycles; the number of levels pushed."""
        return sum(self._once() for _ in range(cycles))

    def _once(self) -> int:
        share = self.weights / self.weights.sum()
        running = self.in_flight * COUNT * share * self.chance.normal(1.0, 0.05, COUNT)
        step_s = np.array([step_ms(profile(), MIX, each) for each in running]) / self.speed / 1000.0
        self.ended += self.chance.poisson(running / step_s / MIX.output_mean * CADENCE_S)
        said = step_s / self.claims * self.chance.normal(1.0, 0.02, COUNT)
        servers = [
            server(member, int(each.weight), each.limit, in_flight=int(held), completed_total=int(done))
            for member, each, held, done in zip(
                instances(COUNT),
                self.view.backends[0].servers,
                self.chance.poisson(running).tolist(),
                self.ended.tolist(),
                strict=True,
            )
        ]
        built = steady_pool(
            COUNT,
            running.tolist(),
            kind=CycleKind.WEIGHTS,
            now=NOW + CADENCE_S * self.cycle,
            changes={Signal.STEP_TIME: said.tolist()},
            gateways={"edge": gateway(servers)},
        )
        plan, self.state = decide(built, WRONG, self.state, NO_FORECAST)
        view = applied(built, plan.decisions[POOL]).gateways["edge"]
        assert isinstance(view, GatewayView)
        self.view, self.cycle = view, self.cycle + 1
        return len(plan.decisions[POOL].actions)


@pytest.mark.parametrize("in_flight", [3.0, 20.0])
def test_a_throttled_instance_is_weighted_down_and_let_back(in_flight: float) -> None:
    pool = Pool(in_flight, np.random.default_rng(7))
    assert pool.run(20) == 0, "a healthy noisy pool is left alone"
    pool.speed[SLOW] = 0.4
    pool.run(10)
    others = np.delete(pool.weights, SLOW)
    assert set(others.tolist()) == {100.0}
    assert 34 <= pool.weights[SLOW] <= 48
    assert pool.run(20) <= 20, "noise of the slow one is not pushed at every cycle"
    pool.speed[SLOW] = 1.0
    pool.run(10)
    assert set(pool.weights.tolist()) == {100.0}


def test_an_engine_that_lies_about_its_speed_stays_near_the_others() -> None:
    pool = Pool(20.0, np.random.default_rng(7))
    pool.run(5)
    pool.claims[LIAR] = 5.0
    highest = 0.0
    for _ in range(40):
        pool.run(1)
        highest = max(highest, pool.weights[LIAR])
    assert highest <= 130.0
    assert set(np.delete(pool.weights, LIAR).tolist()) == {100.0}


def test_a_truly_faster_instance_gets_more() -> None:
    pool = Pool(20.0, np.random.default_rng(7))
    pool.speed[LIAR] = 1.6
    pool.run(40)
    assert pool.weights[LIAR] >= 140
