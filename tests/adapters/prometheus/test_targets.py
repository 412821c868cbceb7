"""The list of targets as the list of instances: whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.adapters.prometheus.client import PrometheusClient
from controlplane.adapters.prometheus.targets import instances
from controlplane.domain.fleet import Instance, Phase
from controlplane.ports import Unavailable
from controlplane.settings import PrometheusSettings
from tests.adapters.prometheus.fake import FakePrometheus, fake_prometheus, http, vector

WHERE = '{cluster="demo",pool!="",instance_id!=""}'
UP, STARTED = f"up{WHERE}", f"process_start_time_seconds{WHERE}"


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus() as fake:
        fake.faults = {UP: http(vector()), STARTED: http(vector())}
        yield fake


def found(server: FakePrometheus) -> tuple[Instance, ...]:
    client = PrometheusClient(PrometheusSettings(server.url, 5.0, 5.0))
    try:
        return instances(client, "demo")
    finally:
        client.close()


def target(name: str, **labels: str) -> dict[str, str]:
    return {"pool": "chat-8b", "instance_id": f"demo/{name}@s1", "instance": "10.0.0.1:8000", **labels}


def test_each_target_is_an_instance_and_one_whose_scrape_fails_is_unreachable(server: FakePrometheus) -> None:
    server.faults[UP] = http(vector((target("b"), "0"), (target("a", node="n1"), "1")))
    server.faults[STARTED] = http(vector((target("a"), "1767220000.5")))
    a, b = found(server)
    assert (a.instance_id, a.pool, a.node, a.address) == ("demo/a@s1", "chat-8b", "n1", "10.0.0.1:8000")
    assert (a.phase, a.started_at, a.ready_at) == (Phase.SERVING, 1767220000.5, 1767220000.5)
    assert (b.phase, b.started_at, b.ready_at) == (Phase.UNREACHABLE, 0.0, None)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-5", "0", "1e11"])
def test_a_start_that_cannot_be_is_not_known(server: FakePrometheus, value: str) -> None:
    """A figure without a JSON form would end every cycle; one that is yet to come, that sight is missed."""
    server.faults[UP] = http(vector((target("a"), "1")))
    server.faults[STARTED] = http(vector((target("a"), value)))
    (one,) = found(server)
    assert (one.phase, one.started_at, one.ready_at) == (Phase.SERVING, 0.0, None)


def test_two_targets_of_one_instance_are_one(server: FakePrometheus) -> None:
    server.faults[UP] = http(vector((target("a", job="x"), "1"), (target("a", job="y"), "0")))
    (one,) = found(server)
    assert one.phase is Phase.SERVING


def test_no_target_at_all_is_an_unknown_fleet_and_not_an_empty_one(server: FakePrometheus) -> None:
    with pytest.raises(Unavailable, match="no target with pool and instance_id in cluster demo"):
        found(server)


@pytest.mark.parametrize("query", [UP, STARTED])
def test_half_a_list_is_no_list(server: FakePrometheus, query: str) -> None:
    server.faults[UP] = http(vector((target("a"), "1")))
    assert len(found(server)) == 1
    server.faults[query] = http(vector((target("a"), "1"), warnings=["store 2 did not answer"]))
    with pytest.raises(Unavailable, match="its answer is partial: store 2 did not answer"):
        found(server)
    server.faults[query] = http("gone", "503 Service Unavailable")
    with pytest.raises(Unavailable, match="Prometheus, query"):
        found(server)
