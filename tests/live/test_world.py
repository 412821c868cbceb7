"""The loop on real parts: what it sees of a frozen engine, of lost targets and of a gateway that restarts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from controlplane.adapters.gateways.haproxy.render import CONFIG_FILE
from controlplane.demo import stage as staging
from controlplane.domain.explanation import Input
from controlplane.domain.gateway import GatewayView, ServerState, ServerView
from controlplane.domain.ids import CycleKind, PoolName
from controlplane.domain.plan import Decision, Outcome
from controlplane.domain.readings import Cause, Known, PoolSignal
from controlplane.loop.cycle import Report
from tests.live.conftest import World
from tests.support import eventually

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("live")]

CHAT, VISION, IDLE = PoolName("chat-8b"), PoolName("vision"), PoolName("batch-eval")
SETTLE_S = 60.0
"""More than a window: after a gap no rate is believed before a whole window has passed."""


@contextmanager
def fault(world: World, kind: str, slot: str, **more: float) -> Iterator[None]:
    """A fault in force for the length of a test."""
    url = f"http://127.0.0.1:{world.stage.places.twin}/faults"
    body = json.dumps({"kind": kind, "instance": slot, **more}).encode()
    headers = {"content-type": "application/json"}
    call(urllib.request.Request(url, body, headers))
    try:
        yield
    finally:
        call(urllib.request.Request(f"{url}/{slot}", method="DELETE"))  # noqa: S310 - loopback


def call(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=5.0):  # noqa: S310 - loopback
        pass


def decided(report: Report, pool: PoolName) -> Decision:
    assert report.plan is not None
    return report.plan.decisions[pool]


def causes(decision: Decision) -> dict[str, Cause]:
    """Why instances could not be seen, by slot."""
    inputs: Iterator[Input] = (each for step in decision.explanation.steps for each in step.inputs)
    return {
        each.subject.rpartition("/")[2].partition("@")[0]: each.cause
        for each in inputs
        if each.subject.startswith("demo/") and each.value is None
    }


def servers(report: Report) -> dict[str, ServerView]:
    """The gateway's servers that take traffic as a cycle saw them, by slot."""
    assert report.observation is not None
    view = report.observation.gateways["door"]
    assert isinstance(view, GatewayView)
    rows = (
        row for backend in view.backends for row in backend.servers if row.state is not ServerState.CLOSED
    )
    return {row.instance_id.rpartition("/")[2].partition("@")[0]: row for row in rows}


def until(world: World, kind: CycleKind, told: Callable[[Report], bool], because: str) -> Report:
    """Run cycles until one tells it."""

    def next_one() -> Report | None:
        report = world.cycle(kind)
        return report if told(report) else None

    found = eventually(next_one, SETTLE_S, every_s=0.5, because=because)
    assert found is not None
    return found


def busy(report: Report) -> bool:
    """Whether the two busy pools are seen at work, by engines and gateway alike."""
    assert report.observation is not None
    seen = report.observation.pools
    return all(
        isinstance(reading := seen.get(pool, {}).get(PoolSignal.COMPLETIONS), Known) and reading.value > 0.5
        for pool in (CHAT, VISION)
    )


def free(report: Report) -> bool:
    """Whether the busy pool is not held."""
    return decided(report, CHAT).outcome is not Outcome.HELD


def test_a_frozen_answer_is_called_frozen_and_an_idle_healthy_engine_is_not(world: World) -> None:
    """Fresh timestamps, byte-identical text, while the gateway sends it traffic (B-013's cousin)."""
    until(world, CycleKind.CAPACITY, busy, "traffic flows")
    before = world.cycle(CycleKind.WEIGHTS)
    assert Cause.FROZEN not in causes(decided(before, VISION)).values()
    with fault(world, "frozen", "vision-02"):
        report = until(
            world,
            CycleKind.WEIGHTS,
            lambda each: causes(decided(each, VISION)).get("vision-02") is Cause.FROZEN,
            "the frozen answer is called frozen",
        )
        assert [slot for slot, why in causes(decided(report, VISION)).items() if why is Cause.FROZEN] == [
            "vision-02"
        ]
        assert Cause.FROZEN not in causes(decided(report, IDLE)).values()
        assert Cause.FROZEN not in causes(decided(report, CHAT)).values()
    until(
        world,
        CycleKind.WEIGHTS,
        lambda each: Cause.FROZEN not in causes(decided(each, VISION)).values(),
        "it is believed again once it moves",
    )


def test_a_restarted_gateway_is_repaired_within_one_cycle(world: World) -> None:
    """After a restart HAProxy has only its file, which here is of another mind."""
    until(world, CycleKind.CAPACITY, busy, "traffic flows")
    config = world.stage.places.folder / "gateway" / CONFIG_FILE
    rendered = config.read_text("utf-8")
    intended = {slot: row.weight for slot, row in servers(world.cycle(CycleKind.WEIGHTS)).items()}
    assert set(intended.values()) == {100}
    try:
        config.write_text(rendered.replace(" weight 100 ", " weight 37 "), "utf-8")
        staging.restart_gateway(world.stage)
        repairing = world.cycle(CycleKind.WEIGHTS)
    finally:
        config.write_text(rendered, "utf-8")
    assert {row.weight for row in servers(repairing).values()} == {37}
    assert {slot: row.weight for slot, row in servers(world.cycle(CycleKind.WEIGHTS)).items()} == intended


def test_lost_targets_hold_the_pools_and_move_nothing(world: World) -> None:
    """Half of the targets go, then all: held, no weight moves, no pool shrinks (B-011)."""
    seen = until(
        world, CycleKind.CAPACITY, lambda each: decided(each, CHAT).outcome is not Outcome.HELD, "seen"
    )
    weights = {slot: row.weight for slot, row in servers(seen).items()}
    for share in (0.5, 0.0):
        staging.write_targets(world.stage, staging.targets(world.stage), share)
        held = until(
            world,
            CycleKind.CAPACITY,
            lambda each: not free(each),
            f"held with {share} of the targets",
        )
        assert decided(held, CHAT).explanation.code == "coverage_low"
        for pool in (CHAT, VISION, IDLE):
            after, size = decided(held, pool).explanation.after, decided(held, pool).explanation.before
            assert after is not None
            assert size is not None
            assert after >= size
        assert {slot: row.weight for slot, row in servers(world.cycle(CycleKind.WEIGHTS)).items()} == weights
    staging.write_targets(world.stage, staging.targets(world.stage))
    until(
        world, CycleKind.CAPACITY, lambda each: decided(each, CHAT).outcome is not Outcome.HELD, "seen again"
    )
