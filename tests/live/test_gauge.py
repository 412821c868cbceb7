"""A fleet whose sizes somebody else brings about: real targets, a real Prometheus, and a number to follow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from controlplane.adapters.clock import SystemClock
from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.adapters.sql.open import open_record
from controlplane.demo import stage as staging
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.policy import Mode, Policies
from controlplane.loop.cycle import Loop
from controlplane.settings import OrchestratorKind, OrchestratorSettings
from controlplane.wiring import Shared, open_loop
from tests.live.conftest import World
from tests.support import eventually

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("live")]

CHAT = PoolName("chat-8b")
SETTLE_S = 60.0


@dataclass(slots=True)
class Follower:
    """A second loop over the same Prometheus, and the numbers that it shows."""

    loop: Loop
    policies: Policies
    shown: dict[PoolName, int]

    def decide(self) -> Decision:
        """One capacity cycle's word on the busy pool."""
        report = self.loop.cycle(CycleKind.CAPACITY, self.policies)
        assert report.plan is not None, report.failure
        return report.plan.decisions[CHAT]


@pytest.fixture
def follower(world: World) -> Iterator[Follower]:
    settings = replace(
        load_fleet(world.stage.places.fleet),
        gateways=(),
        orchestrator=OrchestratorSettings(OrchestratorKind.GAUGE),
    )
    moved = {
        pool: replace(each, capacity_mode=Mode.AUTO if pool == CHAT else Mode.OBSERVE)
        for pool, each in world.policies.pools.items()
    }
    record = open_record(f"sqlite:///{world.stage.places.folder / 'gauge.db'}", settings.cluster, "demo")
    shown: dict[PoolName, int] = {}
    shared = Shared(SystemClock(), threading.Event(), shown)
    with open_loop(settings, record, shared, inline=False) as loop:
        yield Follower(loop, replace(world.policies, pools=moved), shown)
    record.lease.release()
    record.close()


def standing(follower: Follower) -> int:
    """Instances of the busy pool that Prometheus has as targets."""
    seen = follower.loop.last_known
    return sum(each.pool == CHAT for each in seen)


def test_a_pool_that_follows_a_gauge_keeps_its_number_while_its_targets_are_lost(
    world: World, follower: Follower
) -> None:
    """A level that followed what is seen would have whoever follows it end what is not seen."""
    targets = staging.targets(world.stage)
    assert follower.shown == {}
    first = eventually(
        lambda: each if (each := follower.decide()).actions else None,
        SETTLE_S,
        every_s=0.5,
        because="the pool has been seen for a window, and a number is shown",
    )
    assert first is not None
    before = dict(follower.shown)
    assert before == {CHAT: standing(follower)}
    try:
        for share in (0.5, 0.0):
            staging.write_targets(world.stage, targets, share)
            held = eventually(
                lambda: each if (each := follower.decide()).outcome is Outcome.HELD else None,
                SETTLE_S,
                every_s=0.5,
                because=f"held with {share} of the targets",
            )
            assert held is not None
            assert (held.explanation.before, held.actions) == (before[CHAT], ())
    finally:
        staging.write_targets(world.stage, targets, 1.0)
    assert follower.shown == before
