"""What the rendered configuration does to requests, on a real HAProxy with streaming engines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from controlplane.adapters.gateways.haproxy.layout import PoolLayout, ServerLayout, Timeouts
from controlplane.domain.ids import PoolName
from controlplane.domain.plan import ActionKind
from tests.adapters.gateways.callers import CHAT, Crowd, Stream, ask
from tests.adapters.gateways.conftest import Door, MakeDoor
from tests.adapters.gateways.engines import FIRST, chat
from tests.support import eventually, free_port

pytestmark = pytest.mark.real

BIG = "x" * 200_000


def test_the_first_token_reaches_the_caller_before_the_engine_sends_a_second(door: Door) -> None:
    door.engines[0].hold()
    door.engines[1].hold()
    stream = Stream(door.port)
    assert stream.read_some() == FIRST
    assert sum(engine.served for engine in door.engines) == 0
    for engine in door.engines:
        engine.finish_all()
    assert b"[DONE]" in stream.read_rest()


@pytest.mark.parametrize("silent", [True, False], ids=["before the first token", "in mid-stream"])
def test_an_engine_hears_of_a_caller_that_left(make_door: MakeDoor, silent: bool) -> None:
    door = make_door(engines=1)
    engine = door.engines[0]
    engine.hold()
    engine.silent = silent
    stream = Stream(door.port)
    if not silent:
        assert stream.read_some() == FIRST
    eventually(lambda: engine.in_flight == 1, 5)
    stream.leave()
    eventually(lambda: engine.gone == 1, 5, because="the engine may stop generating")
    assert engine.served == 0


def test_a_caller_that_left_the_queue_is_never_served(make_door: MakeDoor) -> None:
    door = make_door(engines=1, limit=1)
    engine = door.engines[0]
    engine.hold()
    crowd = Crowd(door.port).send(1)
    eventually(lambda: engine.in_flight == 1, 5)
    waiting = Stream(door.port)
    eventually(lambda: door.backend().queue == 1, 5)
    waiting.leave()
    eventually(lambda: door.backend().queue == 0, 5)
    assert door.backend().refused_total == 0
    engine.finish_all()
    assert crowd.join() == [200]
    assert len(engine.requests) == 1


def test_an_engine_never_has_more_in_flight_than_its_limit_and_the_rest_waits(door: Door) -> None:
    for engine in door.engines:
        engine.hold()
    crowd = Crowd(door.port).send(12)
    eventually(lambda: door.backend().queue == 8, 5)
    assert [engine.in_flight for engine in door.engines] == [2, 2]
    for engine in door.engines:
        engine.finish_all()
    assert crowd.join() == [200] * 12
    assert [engine.peak for engine in door.engines] == [2, 2]


def test_a_raised_limit_takes_from_the_queue_and_a_lowered_one_cuts_nobody(make_door: MakeDoor) -> None:
    door = make_door(engines=1, limit=1)
    engine = door.engines[0]
    engine.hold()
    crowd = Crowd(door.port).send(4)
    eventually(lambda: door.backend().queue == 3, 5)
    door.apply_one(ActionKind.SET_LIMIT, "s1", 3)
    eventually(lambda: engine.in_flight == 3, 5)
    door.apply_one(ActionKind.SET_LIMIT, "s1", 1)
    assert (engine.in_flight, door.backend().queue) == (3, 1)
    engine.finish(2)
    eventually(lambda: engine.in_flight == 1, 5)
    assert door.backend().queue == 1
    engine.finish_all()
    assert crowd.join() == [200] * 4


def test_a_full_queue_answers_503_with_retry_after_in_json(make_door: MakeDoor) -> None:
    door = make_door(engines=1, limit=1, queue_bound=3, retry_after_s=7)
    door.engines[0].hold()
    crowd = Crowd(door.port).send(4)
    eventually(lambda: door.backend().queue == 3, 5)
    refused = ask(door.port, chat())
    assert (refused.status, refused.headers["retry-after"], refused.error_code) == (503, "7", "queue_full")
    door.engines[0].finish_all()
    assert crowd.join() == [200] * 4


def test_who_waits_too_long_is_told_to_come_back(make_door: MakeDoor) -> None:
    door = make_door(engines=1, limit=1, timeouts=Timeouts(queue_s=0.2))
    door.engines[0].hold()
    crowd = Crowd(door.port).send(1)
    eventually(lambda: door.engines[0].in_flight == 1, 5)
    late = ask(door.port, chat())
    assert (late.status, late.headers["retry-after"], late.error_code) == (503, "5", "gateway_503")
    assert door.backend().refused_total == 1
    door.engines[0].finish_all()
    assert crowd.join() == [200]


def test_a_server_that_refuses_connections_costs_no_request(make_door: MakeDoor) -> None:
    """Redispatch: else a request meets the dead server again and again, and fails."""
    door = make_door(engines=1, up=False)
    dead = ServerLayout("s2", f"127.0.0.1:{free_port()}", 2)
    pool = door.layout.pools[0]
    door.layout = replace(door.layout, pools=(replace(pool, servers=(*pool.servers, dead)),))
    door.up()
    assert [ask(door.port, chat()).status for _ in range(6)] == [200] * 6


def test_an_engine_that_fails_once_accepted_is_not_asked_again(make_door: MakeDoor) -> None:
    """A prompt must not run twice, whatever the budget for retries."""
    door = make_door(retry_budget_percent=100)
    for engine in door.engines:
        engine.status = 500
    assert ask(door.port, chat()).status == 500
    assert sum(len(engine.requests) for engine in door.engines) == 1


def test_an_engine_that_is_full_is_passed_over_within_the_budget(make_door: MakeDoor) -> None:
    """503 means that nothing was begun, so another server may be asked."""
    door = make_door(retry_budget_percent=100)
    door.engines[0].status = 503
    assert [ask(door.port, chat()).status for _ in range(4)] == [200] * 4
    assert len(door.engines[0].requests) > 0


def test_without_a_budget_no_answer_is_asked_for_twice(make_door: MakeDoor) -> None:
    door = make_door(retry_budget_percent=0)
    for engine in door.engines:
        engine.status = 503
    assert ask(door.port, chat()).status == 503
    assert sum(len(engine.requests) for engine in door.engines) == 1


# Which pool.


@pytest.fixture
def pools(make_door: MakeDoor) -> Door:
    """`chat-8b` at engine 1, `vision` at engine 2, which also takes what cannot be read."""
    door = make_door(up=False)
    first, second = door.layout.pools[0].servers
    door.layout = replace(
        door.layout,
        pools=(
            PoolLayout(PoolName("chat-8b"), ("llama-3.1-8b", "chat"), (first,)),
            PoolLayout(PoolName("vision"), ("vision-12b", "org/vision"), (second,)),
        ),
        long_pool=PoolName("vision"),
    )
    return door.up()


def reached(door: Door) -> list[int]:
    return [len(engine.requests) for engine in door.engines]


@pytest.mark.parametrize(
    ("model", "expected"),
    [("llama-3.1-8b", [1, 0]), ("chat", [1, 0]), ("vision-12b", [0, 1]), ("org/vision", [0, 1])],
)
def test_the_bodys_model_chooses_the_pool_aliases_included(
    pools: Door, model: str, expected: list[int]
) -> None:
    assert ask(pools.port, chat(model)).status == 200
    assert reached(pools) == expected


def test_a_slash_may_be_escaped_as_json_allows(pools: Door) -> None:
    assert ask(pools.port, b'{"model":"org\\/vision"}').status == 200
    assert reached(pools) == [0, 1]


def test_a_model_inside_another_object_is_not_taken_for_it(pools: Door) -> None:
    body = b'{"metadata":{"model":"vision-12b"},"model":"llama-3.1-8b"}'
    assert ask(pools.port, body).status == 200
    assert reached(pools) == [1, 0]


@pytest.mark.parametrize("model", ["gpt-none", "llama-3.1-8", "llama-3.1-8b ", "LLAMA-3.1-8B", ""])
def test_an_unknown_model_is_404_in_json(pools: Door, model: str) -> None:
    reply = ask(pools.port, chat(model))
    assert (reply.status, reply.error_code) == (404, "model_not_found")
    assert reply.headers["content-type"] == "application/json"
    assert reached(pools) == [0, 0]


@pytest.mark.parametrize("body", [b"{}", b'{"model":', b'{"model":null}', b"", b"[]", b"\xff\x00"])
def test_a_request_without_a_readable_model_is_400_in_json(pools: Door, body: bytes) -> None:
    reply = ask(pools.port, body)
    assert (reply.status, reply.error_code) == (400, "model_missing")
    assert reached(pools) == [0, 0]


def test_a_model_before_a_big_prompt_is_found(pools: Door) -> None:
    assert ask(pools.port, json.dumps({"model": "llama-3.1-8b", "prompt": BIG}).encode()).status == 200
    assert reached(pools) == [1, 0]


def chunked(body: bytes) -> Iterator[bytes]:
    for at in range(0, len(body), 8_192):
        yield body[at : at + 8_192]


@pytest.mark.parametrize("encoding", ["length", "chunked"])
def test_a_model_behind_a_big_prompt_goes_to_the_long_pool_and_is_no_404(pools: Door, encoding: str) -> None:
    body = json.dumps({"prompt": BIG, "model": "llama-3.1-8b"}).encode()
    assert ask(pools.port, body if encoding == "length" else chunked(body)).status == 200
    assert reached(pools) == [0, 1]
    assert pools.engines[1].requests[0][2] == body


def test_a_header_names_the_model_where_the_body_cannot_be_read(pools: Door) -> None:
    body = json.dumps({"prompt": BIG, "model": "llama-3.1-8b"}).encode()
    assert ask(pools.port, body, headers={"x-model": "llama-3.1-8b"}).status == 200
    assert reached(pools) == [1, 0]


def test_a_path_names_the_pool_where_nothing_else_does_and_is_taken_off(pools: Door) -> None:
    body = json.dumps({"prompt": BIG}).encode()
    assert ask(pools.port, body, path=f"/pools/chat-8b{CHAT}").status == 200
    assert reached(pools) == [1, 0]
    assert pools.engines[0].requests[0][0] == CHAT


def test_the_bodys_model_outweighs_header_and_path(pools: Door) -> None:
    headers = {"x-model": "llama-3.1-8b"}
    assert ask(pools.port, chat("vision-12b"), path=f"/pools/chat-8b{CHAT}", headers=headers).status == 200
    assert reached(pools) == [0, 1]


def test_without_a_long_pool_the_caller_is_told_how_to_name_the_model(door: Door) -> None:
    body = json.dumps({"prompt": BIG, "model": "llama-3.1-8b"}).encode()
    reply = ask(door.port, body)
    assert (reply.status, reply.error_code) == (413, "model_unreadable")
    assert "x-model" in reply.json()["error"]["message"]


def test_models_and_health_are_answered_by_the_gateway_itself(pools: Door) -> None:
    models = ask(pools.port, path="/v1/models", method="GET")
    assert models.status == 200
    names = [one["id"] for one in models.json()["data"]]
    assert names == ["llama-3.1-8b", "chat", "vision-12b", "org/vision"]
    assert ask(pools.port, path="/health", method="GET").json() == {"status": "ok"}
    assert ask(pools.port, path="/admin", method="GET").error_code == "not_found"


def test_prometheus_finds_the_pools_at_the_exporter_and_nothing_else_there(door: Door) -> None:
    ask(door.port, chat())
    text = requests.get(f"http://127.0.0.1:{door.exporter_port}/metrics", timeout=5).text
    assert 'haproxy_backend_http_requests_total{proxy="chat-8b"} 1' in text
    assert requests.get(f"http://127.0.0.1:{door.exporter_port}/", timeout=5).status_code == 404


def logged(door: Door) -> dict[str, Any]:
    """The first request's line, once it ended."""
    log = door.directory / "haproxy.log"
    line = eventually(
        lambda: next((one for one in log.read_text().splitlines() if one.startswith("{")), ""), 5
    )
    return dict(json.loads(line))


def test_the_log_stamps_the_first_token_and_not_the_headers(make_door: MakeDoor) -> None:
    """Engines send their headers at once and think afterwards."""
    door = make_door(engines=1, log="stdout")
    engine = door.engines[0]
    engine.hold()
    engine.thinks = True
    crowd = Crowd(door.port).send(1)
    eventually(lambda: engine.in_flight == 1, 5)
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 0.05, 5, every_s=0.01)
    thought_ms = 1000 * (time.monotonic() - began)
    engine.finish_all()
    assert crowd.join() == [200]
    assert int(logged(door)["ttft_ms"]) >= int(thought_ms) - 1


def test_the_log_names_pool_server_and_model_and_keeps_keys_out(make_door: MakeDoor) -> None:
    door = make_door(engines=1, log="stdout")
    ask(door.port, chat(), headers={"authorization": "Bearer sk-secret"})
    line = logged(door)
    assert (line["pool"], line["server"], line["status"]) == ("chat-8b", "s1", 200)
    assert line["model"] == "llama-3.1-8b"
    assert len(str(line["at_ms"])) == len("1800000000000")
    assert "sk-secret" not in (door.directory / "haproxy.log").read_text()


def test_no_model_name_can_break_the_log_line(make_door: MakeDoor) -> None:
    door = make_door(engines=1, log="stdout")
    assert ask(door.port, chat('"},\n{"x":"%[env(HOME)]')).status == 404
    assert logged(door)["model"] == '"},\n{"x":"%[env(HOME)]'
