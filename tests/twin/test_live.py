"""The live twin over real sockets: what a caller, Prometheus and an operator meet."""

from __future__ import annotations

import http.client
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import eventually, free_port, start, stop

pytestmark = pytest.mark.xdist_group("twin")
CHAT = "/v1/chat/completions"


@dataclass(slots=True)
class Twin:
    """A running twin. Addresses are `host:port`."""

    control: str

    def get(self, path: str, address: str | None = None) -> tuple[int, bytes]:
        return ask(address or self.control, "GET", path)

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def instance(self, slot: str) -> dict[str, Any]:
        return next(
            each for each in self.json("/inventory")["instances"] if f"/{slot}@" in each["instance_id"]
        )

    def address(self, slot: str) -> str:
        return str(self.instance(slot)["address"])

    def value(self, slot: str, sample: str, **labels: str) -> float:
        text = self.get("/metrics", self.address(slot))[1].decode()
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                if each.name == sample and labels.items() <= each.labels.items():
                    return each.value
        raise AssertionError(f"{slot} exports no {sample}")

    def card(self, node: str, sample: str, gpu: str) -> float:
        targets = {each["labels"]["node"]: each["targets"][0] for each in self.json("/sd/gpus")}
        text = self.get("/metrics", targets[node])[1].decode()
        samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
        return next(s.value for s in samples if s.name == sample and s.labels["gpu"] == gpu)

    def order(self, kind: str, slot: str, **more: float) -> tuple[int, Any]:
        status, body = ask(self.control, "POST", "/faults", {"kind": kind, "instance": slot, **more})
        return status, json.loads(body)

    def clear(self, slot: str) -> None:
        assert ask(self.control, "DELETE", f"/faults/{slot}")[0] == 200

    def step_s(self, slot: str, tokens: int = 60) -> float:
        """Mean inter-token latency over one request, by the engine's own histogram."""
        name = "vllm:inter_token_latency_seconds"
        before = (self.value(slot, f"{name}_sum"), self.value(slot, f"{name}_count"))
        assert self.complete(slot, tokens)[0] == 200
        after = (self.value(slot, f"{name}_sum"), self.value(slot, f"{name}_count"))
        return (after[0] - before[0]) / (after[1] - before[1])

    def complete(self, slot: str, tokens: int, **more: Any) -> tuple[int, bytes]:
        return ask(self.address(slot), "POST", CHAT, body(tokens, **more))


def body(tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "llama-3.1-8b",
        "prompt_tokens": 200,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


def ask(address: str, method: str, path: str, sent: Any = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request(
            method, path, None if sent is None else json.dumps(sent), {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def serve(log: Path, *more: str) -> Any:
    return start([sys.executable, "-m", "controlplane", "twin", "serve", "--cold-start", "0.5", *more], log)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    port, log = free_port(), tmp_path_factory.mktemp("twin") / "twin.log"
    process = serve(log, "--port", str(port))
    try:
        eventually(lambda: '"control"' in log.read_text("utf-8"), 30, because="the twin is ready")
        yield Twin(f"127.0.0.1:{port}")
    finally:
        assert stop(process) == 0
    said = [line for line in log.read_text("utf-8").splitlines() if line]
    assert [json.loads(line)["control"] for line in said] == [port]


def test_a_streamed_answer_comes_whole_first_token_apart(twin: Twin) -> None:
    status, raw = twin.complete("chat-8b-01", 40)
    events = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert status == 200
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    texts = [each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"]]
    assert texts[0] == " tok"
    assert "".join(texts).count("tok") == 40
    assert chunks[-1]["usage"] == {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240}


def test_an_answer_can_come_in_one_piece_and_as_plain_completion(twin: Twin) -> None:
    whole = json.loads(twin.complete("chat-8b-01", 5, stream=False)[1])
    assert whole["choices"][0]["message"]["content"].count("tok") == 5
    plain = {"model": "llama-3.1-8b", "prompt": "one two three four", "max_tokens": 3}
    answer = json.loads(ask(twin.address("chat-8b-01"), "POST", "/v1/completions", plain)[1])
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    models = json.loads(twin.get("/v1/models", twin.address("chat-8b-01"))[1])
    assert [each["id"] for each in models["data"]] == ["llama-3.1-8b"]
    assert twin.get("/health", twin.address("chat-8b-01"))[0] == 200


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_tokens": 0}, "max_tokens: 0 is not a whole number in 1..1000000"),
        ({"max_tokens": True}, "max_tokens: True"),
        ({"prompt_tokens": "many"}, "prompt_tokens: 'many'"),
        ({"model": None}, "model: a name is required"),
        ({"prompt_tokens": 900_000}, "do not fit 420900"),
    ],
)
def test_a_bad_request_is_answered_in_words(twin: Twin, wrong: dict[str, Any], says: str) -> None:
    status, raw = twin.complete("chat-8b-01", 5, **wrong)
    assert status == 400
    assert says in json.loads(raw)["error"]["message"]


def test_a_caller_who_leaves_gives_the_seat_back_and_is_counted_as_abort(twin: Twin) -> None:
    aborts = twin.value("chat-8b-02", "vllm:request_success_total", finished_reason="abort")
    connection = http.client.HTTPConnection(twin.address("chat-8b-02"), timeout=20)
    connection.request("POST", CHAT, json.dumps(body(5000)))
    assert connection.getresponse().read(20)
    assert twin.value("chat-8b-02", "vllm:num_requests_running") == 1
    connection.close()
    eventually(lambda: twin.value("chat-8b-02", "vllm:num_requests_running") == 0, 10)
    assert twin.value("chat-8b-02", "vllm:request_success_total", finished_reason="abort") == aborts + 1


def test_an_idle_engine_burns_processor_time_while_its_token_counters_stand_still(twin: Twin) -> None:
    cpu, tokens = (
        twin.value("batch-eval-01", n) for n in ("process_cpu_seconds_total", "vllm:generation_tokens_total")
    )
    eventually(lambda: twin.value("batch-eval-01", "process_cpu_seconds_total") > cpu, 10)
    assert twin.value("batch-eval-01", "vllm:generation_tokens_total") == tokens


def test_a_slow_card_takes_longer_a_throttled_one_shows_its_clock(twin: Twin) -> None:
    node, healthy = twin.instance("chat-8b-03")["node"], twin.step_s("chat-8b-03")
    assert twin.card(node, "DCGM_FI_DEV_SM_CLOCK", "2") == 1980
    for kind, clock in (("slow", 1980), ("throttle", 1095)):
        assert twin.order(kind, "chat-8b-03", factor=0.5)[0] == 201
        assert twin.step_s("chat-8b-03") == pytest.approx(2 * healthy, rel=0.02)
        assert twin.card(node, "DCGM_FI_DEV_SM_CLOCK", "2") == clock
    twin.clear("chat-8b-03")
    assert twin.step_s("chat-8b-03") == pytest.approx(healthy, rel=0.02)


def test_a_frozen_answer_repeats_its_bytes_while_the_engine_serves_on(twin: Twin) -> None:
    address = twin.address("chat-8b-04")
    before = twin.get("/metrics", address)
    assert twin.complete("chat-8b-04", 5)[0] == 200
    assert twin.get("/metrics", address) != before
    twin.order("frozen", "chat-8b-04")
    frozen = twin.get("/metrics", address)
    assert twin.complete("chat-8b-04", 5)[0] == 200
    assert twin.get("/metrics", address) == frozen
    twin.clear("chat-8b-04")
    assert twin.get("/metrics", address) != frozen


def test_a_liar_claims_to_be_idle_and_fast(twin: Twin) -> None:
    honest = twin.step_s("chat-8b-05")
    twin.order("lying", "chat-8b-05")
    assert twin.step_s("chat-8b-05") == pytest.approx(honest / 10, rel=0.05)
    twin.clear("chat-8b-05")


def test_a_hanging_instance_answers_nothing_until_it_is_cleared(twin: Twin) -> None:
    address = twin.address("chat-8b-06")
    twin.order("hang", "chat-8b-06")
    connection = http.client.HTTPConnection(address, timeout=0.5)
    connection.request("GET", "/health")
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    twin.clear("chat-8b-06")
    assert twin.get("/health", address)[0] == 200
    assert twin.complete("chat-8b-06", 5)[0] == 200


def test_a_crash_cuts_the_stream_and_comes_back_as_another_instance_at_the_same_address(twin: Twin) -> None:
    before = twin.instance("chat-8b-07")
    connection = http.client.HTTPConnection(before["address"], timeout=20)
    connection.request("POST", CHAT, json.dumps(body(5000)))
    answer = connection.getresponse()
    assert answer.read(20)
    twin.order("crash", "chat-8b-07")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    answer.close()
    connection.close()
    eventually(lambda: twin.instance("chat-8b-07")["phase"] == "serving", 20)
    after = twin.instance("chat-8b-07")
    assert after["address"] == before["address"]
    assert after["instance_id"] != before["instance_id"]
    assert twin.value("chat-8b-07", "vllm:generation_tokens_total") == 0
    assert twin.json("/truth")["broken_requests"]["chat-8b-07"] == 1


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"kind": "melt", "instance": "chat-8b-01"}, "known: slow, throttle, hang, crash, lying, frozen"),
        ({"kind": "slow", "instance": "nobody"}, "unknown instance 'nobody'; known: batch-eval-01"),
        ({"kind": "slow", "instance": "chat-8b-01", "factor": 9}, "factor is 9; allowed 0.05..2"),
        ({"kind": "slow", "instance": "chat-8b-01", "speed": 1}, "unknown fields ['speed']"),
    ],
)
def test_a_wrong_order_is_refused_in_words_and_does_nothing(
    twin: Twin, sent: dict[str, Any], says: str
) -> None:
    status, raw = ask(twin.control, "POST", "/faults", sent)
    assert status == 400
    assert says in json.loads(raw)["error"]
    assert twin.json("/faults") == []


def test_inventory_and_discovery_name_the_same_fleet_and_every_gpu_once(twin: Twin) -> None:
    inventory, engines = twin.json("/inventory"), twin.json("/sd/engines")
    assert {e["labels"]["instance_id"] for e in engines} == {i["instance_id"] for i in inventory["instances"]}
    assert len(engines) == 24
    assert sum(node["gpu_count"] for node in inventory["nodes"]) == 48
    assert sum(each["tp"] for each in inventory["instances"]) == 40
    assert [node["node_id"] for node in inventory["nodes"] if node["pool"] is None] == ["n6"]
    assert ask(twin.control, "POST", "/drain/vision-01")[0] == 200
    assert twin.instance("vision-01")["phase"] == "draining"
    ask(twin.control, "DELETE", "/drain/vision-01")
    assert twin.instance("vision-01")["phase"] == "serving"


def test_a_port_in_use_is_said_in_one_line(twin: Twin, tmp_path: Path) -> None:
    process = serve(tmp_path / "second.log", "--port", twin.control.rpartition(":")[2])
    assert process.wait(20) == 1
    said = (tmp_path / "second.log").read_text("utf-8")
    assert said.startswith("Error: cannot listen on 127.0.0.1:")
    assert len(said.splitlines()) == 1


def test_sigterm_ends_it_also_with_streams_open(tmp_path: Path) -> None:
    log, port = tmp_path / "twin.log", free_port()
    process = serve(log, "--port", str(port))
    eventually(lambda: '"control"' in log.read_text("utf-8"), 30)
    own = Twin(f"127.0.0.1:{port}")
    connection = http.client.HTTPConnection(own.address("chat-8b-01"), timeout=20)
    connection.request("POST", CHAT, json.dumps(body(5000)))
    assert connection.getresponse().read(20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    connection.close()
    assert len(log.read_text("utf-8").splitlines()) == 1
