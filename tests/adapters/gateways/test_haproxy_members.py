"""Who stands in the file, and with which levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.adapters.gateways.haproxy.gateway import CAPABILITIES
from controlplane.adapters.gateways.haproxy.layout import GatewayLayout
from controlplane.adapters.gateways.haproxy.members import limit_of, pool_layouts, with_levels
from controlplane.domain.fleet import Inventory, Phase
from controlplane.domain.gateway import BackendView, GatewayView, ServerState, ServerView
from controlplane.domain.policy import Routing
from tests.adapters.gateways.conftest import POOL, instance, instance_id
from tests.builders import policies, pool_policy, profile

HERE = (instance("s1", "127.0.0.1:1"), instance("s2", "127.0.0.1:2"))


def inventory(*instances: object) -> Inventory:
    return Inventory(1.0, (), instances or HERE)  # type: ignore[arg-type]


def test_a_pool_becomes_a_backend_with_its_instances_by_slot() -> None:
    (pool,) = pool_layouts(policies(), inventory(*reversed(HERE)))
    assert (pool.pool, pool.models) == (POOL, ("llama-3.1-8b",))
    assert [(one.name, one.address, one.drained) for one in pool.servers] == [
        ("s1", "127.0.0.1:1", False),
        ("s2", "127.0.0.1:2", False),
    ]


def test_a_pool_without_instances_still_has_its_backend() -> None:
    """Its model is known: callers get 503 and may come again, not 404."""
    (pool,) = pool_layouts(policies(), Inventory(1.0, (), ()))
    assert pool.servers == ()


def test_a_pool_that_another_router_serves_is_left_to_it() -> None:
    external = pool_policy(routing=Routing.EXTERNAL)
    assert pool_layouts(policies(external), inventory()) == ()


@pytest.mark.parametrize(
    ("phase", "drained"),
    [
        (Phase.SERVING, False),
        (Phase.LOADING, False),  # the gateway's check lets it in once it answers
        (Phase.DRAINING, True),
        (Phase.ASLEEP, True),
        (Phase.HOT, True),
    ],
)
def test_who_takes_no_traffic_is_rendered_closed(phase: Phase, drained: bool) -> None:
    (pool,) = pool_layouts(policies(), inventory(replace(HERE[0], phase=phase)))
    assert [one.drained for one in pool.servers] == [drained]


def test_the_gone_are_left_out_and_the_newest_holds_its_slot() -> None:
    older = replace(HERE[0], address="127.0.0.1:9", started_at=1.0)
    gone = replace(HERE[1], phase=Phase.GONE)
    (pool,) = pool_layouts(policies(), inventory(HERE[0], older, gone))
    assert [(one.name, one.address) for one in pool.servers] == [("s1", "127.0.0.1:1")]


def test_the_limit_is_the_policys_else_the_measured_water_level() -> None:
    assert limit_of(pool_policy(), profile(water_level=40, max_num_seqs=64)) == 40
    assert limit_of(pool_policy(), profile(water_level=40, max_num_seqs=16)) == 16
    assert limit_of(pool_policy(limit=9), profile(water_level=40)) == 9


def test_a_file_rendered_anew_keeps_the_levels_that_the_gateway_has() -> None:
    layout = GatewayLayout(
        "127.0.0.1:1", "127.0.0.1:2", Path("/run/x.sock"), pool_layouts(policies(), inventory())
    )
    assert [(one.weight, one.drained) for one in layout.pools[0].servers] == [(100, False), (100, False)]
    servers = (
        ServerView(instance_id("s1"), ServerState.CLOSED, 37, 5, 0, 0),
        ServerView(instance_id("s2"), ServerState.ABSENT, 0, 1, 0, 0),
    )
    view = GatewayView("door", 1.0, "e", CAPABILITIES, (BackendView(POOL, 0, 0, 0, 0, servers),))
    kept = with_levels(layout, view).pools[0].servers
    assert (kept[0].weight, kept[0].limit, kept[0].drained) == (37, 5, True)
    assert kept[1] == layout.pools[0].servers[1]
