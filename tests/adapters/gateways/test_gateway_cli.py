"""`trimtab gateway`: from policies and an inventory to a file HAProxy starts with, and a look at it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controlplane.cli.gateway import command
from controlplane.domain.plan import ActionKind
from tests.adapters.gateways.conftest import Door
from tests.builders import profile

Trimtab = Callable[..., Result]

POLICY = """\
pool: chat-8b
model: llama-3.1-8b
profile: h100-8b
tp: 1
slo: {ttft_p95: 1s, tpot_p95: 40ms}
capacity: {min: 1, max: 4}
"""


@pytest.fixture
def trimtab() -> Trimtab:
    return lambda *arguments: CliRunner().invoke(command, [str(one) for one in arguments])


@pytest.fixture
def policies(tmp_path: Path) -> list[object]:
    """Options that name a policy for `chat-8b` and its profile."""
    for name, text in (("policies/chat-8b.yaml", POLICY), ("profiles/h100-8b.yaml", profile_text())):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    return ["--policies", tmp_path / "policies", "--profiles", tmp_path / "profiles"]


def profile_text() -> str:
    return "".join(
        f"{key}: {value:f}\n" if isinstance(value, float) else f"{key}: {value}\n"
        for key, value in asdict(profile()).items()
    )


class Inventory:
    """Serves one instance of `chat-8b`, in slot `s1`."""

    def __init__(self) -> None:
        self.address = "127.0.0.1:9001"
        one = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(one.body())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def body(self) -> bytes:
        node = {
            "node_id": "n1",
            "gpu_type": "H100",
            "gpu_count": 8,
            "pool": "chat-8b",
            "unavailable_gpus": 0,
            "models": [],
            "host_memory_gib": 1.0,
        }
        instance = {
            "instance_id": "demo/s1@abc",
            "pool": "chat-8b",
            "node": "n1",
            "tp": 1,
            "phase": "serving",
            "address": self.address,
            "started_at": 1.0,
            "ready_at": None,
            "lent_by": None,
        }
        return json.dumps({"taken_at": 1.0, "nodes": [node], "instances": [instance]}).encode()


@pytest.fixture
def inventory() -> Iterator[Inventory]:
    found = Inventory()
    thread = Thread(target=found.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.mark.real
def test_render_writes_files_that_haproxy_accepts(
    trimtab: Trimtab, policies: list[object], inventory: Inventory, tmp_path: Path
) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not on PATH")
    out = tmp_path / "gateway"
    places = ["--inventory", inventory.url, "--socket", "/run/t.sock", "--out", out]
    done = trimtab("render", *policies, *places, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == {"config": str(out / "haproxy.cfg"), "servers": {"chat-8b": 1}}
    assert "server s1 127.0.0.1:9001 weight 100 maxconn 40" in (out / "haproxy.cfg").read_text()
    subprocess.run(["haproxy", "-c", "-f", out / "haproxy.cfg"], check=True, capture_output=True)


@pytest.mark.real
def test_render_keeps_the_running_gateways_levels_when_asked(
    trimtab: Trimtab, policies: list[object], inventory: Inventory, door: Door, tmp_path: Path
) -> None:
    door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)
    inventory.address = door.engines[0].address
    options = [*policies, "--inventory", inventory.url, "--socket", door.layout.socket, "--out", tmp_path]
    assert trimtab("render", *options).exit_code == 0
    written = tmp_path / "haproxy.cfg"
    assert f"server s1 {inventory.address} weight 100 maxconn 40" in written.read_text()
    assert trimtab("render", *options, "--live").exit_code == 0
    assert f"server s1 {inventory.address} weight 37 maxconn 2" in written.read_text()


def test_render_tells_what_is_wrong_and_writes_nothing(
    trimtab: Trimtab, policies: list[object], inventory: Inventory, tmp_path: Path
) -> None:
    places = ["--inventory", inventory.url, "--socket", "/run/t.sock", "--out", tmp_path / "out"]
    done = trimtab("render", *policies, *places, "--listen", "127.0.0.1:99999")
    assert done.exit_code == 1
    assert "listen is '127.0.0.1:99999'" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["show"], "name the gateway"),
        (["render", "--out", "x"], "name the gateway"),
        (["render", "--out", "x", "--socket", "/s"], "name the inventory"),
        (["show", "--socket", "/nowhere/admin.sock"], "No such file"),
        (["show", "--fleet", "/nowhere/fleet.yaml"], "/nowhere/fleet.yaml"),
    ],
)
def test_a_missing_place_is_asked_for(trimtab: Trimtab, arguments: list[str], what: str) -> None:
    done = trimtab(*arguments)
    assert done.exit_code in (1, 2)
    assert what in done.output


@pytest.mark.real
def test_show_lists_every_server_as_table_and_as_json(trimtab: Trimtab, door: Door) -> None:
    door.apply_one(ActionKind.SET_WEIGHT, "s1", 37)
    door.apply_one(ActionKind.CLOSE, "s2", 0)
    table = trimtab("show", "--socket", door.layout.socket)
    assert table.exit_code == 0, table.output
    assert "37" in table.output
    shown = json.loads(trimtab("show", "--socket", door.layout.socket, "--json").output)
    assert [(one["server"], one["state"], one["weight"]) for one in shown["servers"]] == [
        ("s1", "open", 37),
        ("s2", "closed", 100),
    ]
    assert shown["pools"] == [{"pool": "chat-8b", "queue": 0, "arrivals": 0}]


@pytest.mark.real
def test_fleet_yaml_names_the_gateway(trimtab: Trimtab, door: Door, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    gateway = f"  - name: door\n    kind: haproxy\n    socket: {door.layout.socket}\n"
    fleet.write_text(f"cluster: demo\nprometheus:\n  url: http://127.0.0.1:9090\ngateways:\n{gateway}")
    assert json.loads(trimtab("show", "--fleet", fleet, "--json").output)["gateway"] == "door"
    wrong = trimtab("show", "--fleet", fleet, "--gateway", "other")
    assert wrong.exit_code == 2
    assert "fleet.yaml names door" in wrong.output
