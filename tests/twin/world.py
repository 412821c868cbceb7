"""A running twin and the ways to ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support import eventually, running

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
        for family in self.families(self.address(slot)):
            for each in family.samples:
                if each.name == sample and labels.items() <= each.labels.items():
                    return each.value
        raise AssertionError(f"{slot} exports no {sample}")

    def families(self, address: str) -> list[Metric]:
        status, text = self.get("/metrics", address)
        assert status == 200
        return list(text_string_to_metric_families(text.decode()))

    def cards(self, node: str) -> list[Metric]:
        """What the node's GPU exporter says."""
        targets = {each["labels"]["node"]: each["targets"][0] for each in self.json("/sd/gpus")}
        return self.families(targets[node])

    def card(self, node: str, sample: str, gpu: str) -> float:
        samples = (each for family in self.cards(node) for each in family.samples)
        return next(each.value for each in samples if each.name == sample and each.labels["gpu"] == gpu)

    def put(self, path: str, sent: Any) -> tuple[int, Any]:
        status, body = ask(self.control, "PUT", path, sent)
        return status, json.loads(body)

    def want(self, instance_id: str, state: str, **spec: Any) -> tuple[int, Any]:
        """Order a level; `spec` is sent where any of it is given."""
        place = {"spec": {"lent_by": None, **spec}} if spec else {}
        return self.put(
            "/instances", {"action_id": "a-1", "instance_id": instance_id, "state": state, **place}
        )

    def phase(self, slot: str) -> str:
        return str(self.instance(slot)["phase"])

    def lived(self, slot: str) -> list[str]:
        """Every phase of a slot so far, in the order in which they truly came."""
        lives = self.json("/truth")["lives"]
        return [each["phase"] for each in lives if f"/{slot}@" in each["instance_id"]]

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


@contextlib.contextmanager
def streaming(address: str, tokens: int, **more: Any) -> Iterator[http.client.HTTPResponse]:
    """A streamed answer that has begun, and is left where the block ends."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("POST", CHAT, json.dumps(body(tokens, **more)))
        answer = connection.getresponse()
        assert answer.read(20)
        with answer:
            yield answer
    finally:
        connection.close()


TWIN = (sys.executable, "-m", "controlplane", "twin", "serve")


@contextlib.contextmanager
def twin_running(log: Path, *more: str) -> Iterator[tuple[Twin, Popen[bytes]]]:
    """A twin of its own, until the block ends; what it prints stands in `log`."""
    with running([*TWIN, "--cold-start", "0.5", *more], log) as process:
        line = eventually(lambda: log.read_text("utf-8").strip(), 30, because="the twin says that it is up")
        yield Twin(f"127.0.0.1:{json.loads(line)['control']}"), process
