"""The inventory over HTTP: whole and checked, or Unavailable with the reason; never half of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.orchestrators import twin, wire
from controlplane.adapters.orchestrators.deadline import BoundedCall
from controlplane.adapters.orchestrators.twin import TwinOrchestrator
from controlplane.domain.fleet import Life, Phase, Place
from controlplane.domain.ids import ActionId, CycleId, CycleKind, DecisionId, InstanceId, NodeId, PoolName
from controlplane.ports import Order, OutcomeUnknown, PortError, Refused, Unavailable
from tests.support import eventually, free_port

Answer = Callable[[BaseHTTPRequestHandler], None]


def whole() -> dict[str, Any]:
    """A small inventory: one node, one instance on it."""
    return {
        "taken_at": 1_800_000_000.5,
        "nodes": [
            {
                "node_id": "n1",
                "gpu_type": "H100",
                "gpu_count": 8,
                "pool": "chat-8b",
                "unavailable_gpus": 1,
                "models": ["llama-3.1-8b"],
                "host_memory_gib": 1024.0,
            }
        ],
        "instances": [
            {
                "instance_id": "demo/chat-8b-01@s9k2x1",
                "pool": "chat-8b",
                "node": "n1",
                "tp": 1,
                "phase": "serving",
                "address": "127.0.0.1:9001",
                "started_at": 1_799_999_000.0,
                "ready_at": None,
                "lent_by": None,
            }
        ],
    }


class Far:
    """An HTTP server that answers as the test says."""

    def __init__(self) -> None:
        self.answer: Answer = say(json.dumps(whole()).encode())
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        far = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                far.paths.append(self.path)
                with suppress(OSError):
                    far.answer(self)

            def do_PUT(self) -> None:
                far.paths.append(self.path)
                far.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                with suppress(OSError):
                    far.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def say(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for key, value in (headers or {}).items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def far() -> Iterator[Far]:
    one = Far()
    yield one
    one.close()


def test_an_inventory_arrives_as_the_domains_values(far: Far) -> None:
    found = TwinOrchestrator(far.url + "/").inventory()
    assert far.paths == ["/inventory"]
    assert found.taken_at == 1_800_000_000.5
    node, instance = found.nodes[0], found.instances[0]
    assert (node.node_id, node.gpu_count, node.unavailable_gpus, node.models) == (
        "n1",
        8,
        1,
        ("llama-3.1-8b",),
    )
    assert (instance.instance_id, instance.phase, instance.ready_at) == (
        "demo/chat-8b-01@s9k2x1",
        Phase.SERVING,
        None,
    )


def test_an_empty_fleet_is_an_answer() -> None:
    assert wire.inventory(b'{"taken_at": 1.0, "nodes": [], "instances": []}').instances == ()


def test_fields_of_a_later_version_are_passed_over() -> None:
    body = whole() | {"later": 1}
    body["nodes"][0]["rack"] = "r7"
    assert wire.inventory(json.dumps(body).encode()).nodes[0].node_id == "n1"


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [
        ("nodes", "gpu_count", -1),
        ("nodes", "gpu_count", "8"),
        ("nodes", "gpu_count", 8.5),
        ("nodes", "gpu_count", True),
        ("nodes", "gpu_count", None),
        ("nodes", "unavailable_gpus", 9),
        ("nodes", "host_memory_gib", float("nan")),
        ("nodes", "host_memory_gib", float("inf")),
        ("nodes", "node_id", ""),
        ("nodes", "pool", "Chat 8B"),
        ("nodes", "models", "llama"),
        ("instances", "tp", 0),
        ("instances", "tp", 9),
        ("instances", "phase", "fine"),
        ("instances", "address", "127.0.0.1"),
        ("instances", "address", "127.0.0.1:1\nserver x"),
        ("instances", "address", "127.0.0.1:0"),
        ("instances", "address", "127.0.0.1:99999"),
        ("instances", "address", "127.0.0.1:65536"),
        ("instances", "instance_id", "demo/a b"),
        ("instances", "pool", "chat-8b\n"),
        ("instances", "node", "n9"),
        ("instances", "started_at", -1),
        ("instances", "started_at", 1e308),
        ("instances", "started_at", 1_800_000_000_000),
        ("instances", "started_at", "yesterday"),
        ("instances", "ready_at", 1e308),
        ("instances", "lent_by", 3),
    ],
)
def test_a_wrong_field_refuses_the_whole_and_is_named(where: str, field: str, value: object) -> None:
    body = whole()
    assert wire.inventory(json.dumps(body).encode())
    body[where][0][field] = value
    with pytest.raises(Unavailable, match=rf"{where}\.0\.{field}"):
        wire.inventory(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("address", "127.0.0.1:99999", r"a port from 1 to 65535 \(it is '127\.0\.0\.1:99999'\)"),
        ("started_at", 1e308, r"less than or equal to 253402300799 \(it is 1e\+308\)"),
        ("tp", 0, r"greater than or equal to 1 \(it is 0\)"),
        ("tp", 16, r"is 16, more than the 8 GPUs of 'n1'"),
        ("instance_id", "a" * 999, r"\(it is 'a{59}…\)"),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_allowed(field: str, value: object, said: str) -> None:
    body = whole()
    body["instances"][0][field] = value
    with pytest.raises(Unavailable, match=said):
        wire.inventory(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([8], r"is \[8\], not 1 different of the 8 GPUs of 'n1'"),
        ([0, 1], "not 1 different"),
    ],
)
def test_gpus_that_do_not_make_up_the_instance_are_refused(gpus: list[int], said: str) -> None:
    """They would leave its true ones looking free."""
    body = whole()
    body["instances"][0] |= {"tp": 1, "gpus": gpus}
    with pytest.raises(Unavailable, match=rf"instances\.0\.gpus.*{said}"):
        wire.inventory(json.dumps(body).encode())
    body["instances"][0] |= {"tp": 2, "gpus": [3, 3]}
    with pytest.raises(Unavailable, match="not 2 different"):
        wire.inventory(json.dumps(body).encode())


def test_the_highest_port_and_all_of_a_node_s_gpus_are_taken() -> None:
    body = whole()
    body["instances"][0] |= {"address": "127.0.0.1:65535", "tp": 8, "gpus": []}
    assert wire.inventory(json.dumps(body).encode()).instances[0].tp == 8


def test_an_inventory_from_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"taken_at: .*\(it is 1e\+308\)"):
        wire.inventory(json.dumps(whole() | {"taken_at": 1e308}).encode())


@pytest.mark.parametrize("where", ["nodes", "instances"])
def test_an_absent_field_is_no_zero(where: str) -> None:
    for field in list(whole()[where][0]):
        body = whole()
        del body[where][0][field]
        with pytest.raises(Unavailable, match=rf"{where}\.0\.{field}"):
            wire.inventory(json.dumps(body).encode())


@pytest.mark.parametrize("where", ["nodes", "instances"])
def test_what_stands_twice_is_not_counted_twice(where: str) -> None:
    body = whole()
    body[where] *= 2
    with pytest.raises(Unavailable, match=f"{where}: .* stands twice"):
        wire.inventory(json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b"<html>", b"\xff", b"NaN", b"{}", b"[" * 9_999])
def test_what_is_no_inventory_is_unavailable(body: bytes) -> None:
    with pytest.raises(Unavailable):
        wire.inventory(body)


@given(st.binary(max_size=80))
def test_no_bytes_whatsoever_break_the_reader(body: bytes) -> None:
    with suppress(Unavailable):
        wire.inventory(body)


def test_many_mistakes_are_counted_and_the_first_are_told() -> None:
    body = whole()
    body["nodes"] = [{} for _ in range(4)]
    with pytest.raises(Unavailable, match=r"nodes\.0\.node_id.*and \d+ more"):
        wire.inventory(json.dumps(body).encode())


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
def test_another_status_than_200_is_unavailable(far: Far, status: int) -> None:
    """A redirect is not followed: the fleet file names one place, and the far side names no other."""
    far.answer = say(json.dumps(whole()).encode(), status, {"location": far.url + "/inventory"})
    with pytest.raises(Unavailable, match=f"answered {status}"):
        TwinOrchestrator(far.url).inventory()
    assert len(far.paths) == 1


def test_nobody_there_is_unavailable_and_the_next_question_may_succeed(far: Far) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        TwinOrchestrator(f"http://127.0.0.1:{free_port()}").inventory()
    orchestrator = TwinOrchestrator(far.url)
    far.answer = say(b"", 503)
    with pytest.raises(Unavailable):
        orchestrator.inventory()
    far.answer = say(json.dumps(whole()).encode())
    assert orchestrator.inventory().instances


def test_a_body_that_breaks_off_is_unavailable(far: Far) -> None:
    far.answer = say(b'{"taken_at"', headers={"content-length": "900"})
    with pytest.raises(Unavailable, match="broke off"):
        TwinOrchestrator(far.url).inventory()


def test_an_answer_without_end_is_cut(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "ANSWER_MAX", 1000)
    far.answer = say(b"x" * 5000)
    with pytest.raises(Unavailable, match="larger than 1000 bytes"):
        TwinOrchestrator(far.url).inventory()


@pytest.mark.parametrize("first", ["nothing", "headers"])
def test_a_far_side_that_trickles_is_left_at_the_deadline(far: Far, first: str) -> None:
    """B-059, for the inventory: each byte restarts a socket's timeout, and not the deadline."""
    stopped = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        if first == "headers":
            handler.send_response(200)
            handler.end_headers()
        while not stopped.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    far.answer = trickle
    orchestrator = TwinOrchestrator(far.url, timeout_s=0.3)
    try:
        with pytest.raises(Unavailable, match="no whole answer in time"):
            orchestrator.inventory()
        # While the abandoned call lives, the next does not pile up behind it.
        with pytest.raises(Unavailable, match="no whole answer in time"):
            orchestrator.inventory()
        assert len(far.paths) == 1
    finally:
        stopped.set()
    far.answer = say(json.dumps(whole()).encode())
    eventually(lambda: answered(orchestrator), 5, because="the abandoned call has ended")


def answered(orchestrator: TwinOrchestrator) -> bool:
    with suppress(Unavailable):
        return bool(orchestrator.inventory().instances)
    return False


def test_no_proxy_of_the_environment_is_used(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert TwinOrchestrator(far.url).inventory().instances


def test_a_bounded_call_hands_over_results_and_errors() -> None:
    assert BoundedCall(lambda: 7, 5)() == 7
    with pytest.raises(ZeroDivisionError):
        BoundedCall(lambda: 1 // 0, 5)()


CHAT = PoolName("chat-8b")
ACTION = ActionId(DecisionId(CycleId("demo", CycleKind.CAPACITY, 7), CHAT), 0)
WAKE = Order(ACTION, InstanceId("demo/chat-8b-s01@s9k2x1"), CHAT, Place(NodeId("n6"), (0,)), Life.AWAKE)


def test_an_order_leaves_once_as_a_level_under_its_actions_name(far: Far) -> None:
    far.answer = say(b'{"changed": true}')
    TwinOrchestrator(far.url).ensure(WAKE)
    assert far.paths == ["/instances"]
    assert far.bodies == [
        {
            "action_id": str(ACTION),
            "instance_id": "demo/chat-8b-s01@s9k2x1",
            "state": "awake",
            "spec": {"pool": "chat-8b", "node": "n6", "gpus": [0]},
        }
    ]


def silent(_handler: BaseHTTPRequestHandler) -> None:
    """It closes without a word."""


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (say(b'{"error": "GPU 0 of n6 is held"}', 409), Refused, "answered 409: GPU 0 of n6 is held"),
        (say(b"<html>", 404), Refused, "answered 404: without a reason"),
        (say(b"<html>", 500), OutcomeUnknown, "answered 500: without a reason"),
        (silent, OutcomeUnknown, "cannot be reached, or broke off"),
        (say(b"{", headers={"content-length": "900"}), OutcomeUnknown, "broke off"),
    ],
)
def test_an_order_that_was_heard_is_refused_or_unknown_and_never_tried_again(
    far: Far, answer: Answer, error: type[PortError], said: str
) -> None:
    far.answer = answer
    with pytest.raises(error, match=said):
        TwinOrchestrator(far.url).ensure(WAKE)
    assert len(far.paths) == 1


def test_an_order_to_nobody_is_known_not_to_have_happened() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        TwinOrchestrator(f"http://127.0.0.1:{free_port()}").ensure(WAKE)


def test_an_order_whose_answer_takes_too_long_is_unknown_and_the_next_may_succeed(far: Far) -> None:
    """The far side had it, and carries it out for all we know: only a look can tell."""
    done = threading.Event()
    quick = say(b'{"changed": true}')

    def late(handler: BaseHTTPRequestHandler) -> None:
        done.wait(10)
        quick(handler)

    far.answer = late
    orchestrator = TwinOrchestrator(far.url, timeout_s=0.3)
    with pytest.raises(OutcomeUnknown, match="no whole answer in time"):
        orchestrator.ensure(WAKE)
    assert len(far.bodies) == 1
    done.set()
    far.answer = quick
    orchestrator.ensure(WAKE)
