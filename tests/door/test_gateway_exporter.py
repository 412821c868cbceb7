"""The exporter as a process beside a real HAProxy, with real callers who hold a watch of their own."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from controlplane.adapters.gateways.haproxy.runtime import Deadline
from controlplane.cli.main import main
from controlplane.door.beside import PRECISELY, process_times
from controlplane.door.line import parse
from tests.adapters.gateways.callers import Crowd, Stream, ask
from tests.adapters.gateways.conftest import Door, MakeDoor, make_door  # noqa: F401  # a fixture
from tests.adapters.gateways.engines import chat
from tests.door.test_line import raw
from tests.support import eventually, free_port, running

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.real


@dataclass
class Reader:
    """A running exporter."""

    metrics: int
    log: int

    def value(self, name: str, **labels: str) -> float:
        """The sum over all samples of a name that carry these labels."""
        text = requests.get(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5).text
        return sum(
            each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.name == f"trimtab_door_{name}" and labels.items() <= each.labels.items()
        )

    def reaches(self, number: float, name: str, **labels: str) -> None:
        eventually(lambda: self.value(name, **labels) == number, 30, because=f"{name} {labels} is {number}")


@contextmanager
def exporter(door: Door, port: int, *more: str | Path) -> Iterator[Reader]:
    out = door.directory / f"exporter-{time.monotonic_ns()}.log"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "controlplane",
        "gateway-exporter",
        "--socket",
        door.layout.socket,
    ]
    command += ["--log", f"127.0.0.1:{port}", "--metrics", "127.0.0.1:0", *more]
    with running(command, out, cwd=ROOT):
        eventually(lambda: "\n" in out.read_text(), 20, because="the exporter is ready")
        ready = json.loads(out.read_text().splitlines()[0])
        reader = Reader(ready["metrics"], ready["log"])
        reader.reaches(1, "gateway_up")
        yield reader


Observed = tuple[Door, Reader]
Observe = Callable[..., Observed]


@pytest.fixture(params=["", "ring@"], ids=["udp", "ring"])
def observed(request: pytest.FixtureRequest, make_door: MakeDoor) -> Iterator[Observe]:  # noqa: F811
    """Builds a door with a reader of its log, over either transport."""
    with ExitStack() as cleanup:

        def make(*more: str | Path, **changes: object) -> Observed:
            port = free_port()
            door = make_door(log=f"{request.param}127.0.0.1:{port}", **changes)
            return door, cleanup.enter_context(exporter(door, port, *more))

        yield make


def test_first_token_and_total_at_the_door_are_what_callers_measure_queue_included(observed: Observe) -> None:
    """One at a time is served, so the second caller waits at the gateway: its engine never sees that."""
    door, reader = observed(engines=1, limit=1)
    engine = door.engines[0]
    engine.hold()
    engine.thinks = True
    first, began = Stream(door.port), time.monotonic()
    reader.reaches(1, "in_flight", slot="s1")
    second, waits = Stream(door.port), time.monotonic()
    reader.reaches(1, "queue", pool="chat-8b")
    assert reader.value("requests_total") == 0, "nothing has ended, so no line tells of any of it"
    engine.finish()
    first.read_some()
    first_token_s = time.monotonic() - began
    first.read_rest()
    waited_s = time.monotonic() - waits
    engine.finish()
    second.read_some()
    second_token_s = time.monotonic() - waits
    second.read_rest()
    reader.reaches(2, "requests_total", outcome="ok", slot="s1", pool="chat-8b")
    door_s = reader.value("ttft_seconds_sum")
    assert door_s == pytest.approx(first_token_s + second_token_s, abs=0.15)
    assert reader.value("total_seconds_sum") >= door_s - 0.01
    assert reader.value("wait_seconds_sum") == pytest.approx(waited_s, abs=0.15)


def test_a_refusal_a_caller_who_left_and_a_broken_answer_are_told_apart(observed: Observe) -> None:
    door, reader = observed(engines=1, limit=1, queue_bound=1)
    engine = door.engines[0]
    engine.hold()
    served = Stream(door.port)
    served.read_some()
    waiting = Stream(door.port)
    reader.reaches(1, "queue", pool="chat-8b")
    assert ask(door.port, chat()).status == 503
    reader.reaches(1, "refusals_total", pool="chat-8b")
    reader.reaches(1, "requests_total", outcome="refused", status="503", slot="none")
    waiting.leave()
    reader.reaches(1, "requests_total", outcome="left")
    door.command("shutdown sessions server chat-8b/s1")
    reader.reaches(1, "requests_total", outcome="cut")
    served.leave()
    reader.reaches(0, "in_flight", slot="s1")
    assert reader.value("requests_total", outcome="ok") == 0
    assert reader.value("requests_total", status="200") == 1, "the status of a success"
    assert reader.value("total_seconds_count", status="200") == 0, "and none of its times"


def test_lines_that_nobody_could_read_are_counted(make_door: MakeDoor) -> None:  # noqa: F811
    """UDP forgets what comes while nobody listens; the gateway's counts do not, and nothing holds it up."""
    port, elsewhere = free_port(), free_port()
    door = make_door(engines=1, log=f"127.0.0.1:{elsewhere}")
    assert ask(door.port, chat()).status == 200, "a log nobody reads delays nobody"
    with exporter(door, port) as reader:
        eventually(lambda: reader.value("in_flight") == 0 and reader.value("gateway_up") == 1, 5)
        assert reader.value("lost_lines_total") == 0, "what ended before it began is no loss of its own"
        for _ in range(3):
            assert ask(door.port, chat()).status == 200
        reader.reaches(3, "lost_lines_total", pool="chat-8b")
        door.restart()
        for _ in range(2):
            assert ask(door.port, chat()).status == 200
        reader.reaches(5, "lost_lines_total", pool="chat-8b")


def test_a_line_says_when_it_was_written_and_its_process_when_it_began(make_door: MakeDoor) -> None:  # noqa: F811
    """Both by the gateway's clock; a stream's end, and not the beginning of its answer."""
    before_s = time.time()
    door = make_door(engines=1, log="stdout")
    door.engines[0].hold()
    stream = Stream(door.port)
    stream.read_some()
    answered_s = time.time()
    eventually(lambda: time.time() - answered_s > 0.1, 5, every_s=0.01)
    ending_s = time.time()
    door.engines[0].finish_all()
    stream.read_rest()
    log = door.directory / "haproxy.log"
    written = eventually(lambda: [one for one in log.read_bytes().splitlines() if one[:1] == b"{"], 5)
    ended_at = parse(written[0]).ended_at
    assert ended_at is not None
    assert ending_s - 0.05 <= ended_at <= time.time()
    first, second = (process_times(*door.runtime.ask([PRECISELY], Deadline(5))) for _ in range(2))
    assert first[0] == second[0], "the start stands still"
    assert before_s - 0.05 <= first[0] <= answered_s
    assert first[0] + first[1] <= time.time()


def test_half_a_line_is_counted_and_the_next_one_read(observed: Observe) -> None:
    door, reader = observed(engines=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as junk:
        junk.sendto(b'{"half', ("127.0.0.1", reader.log))
    with socket.create_connection(("127.0.0.1", reader.log), timeout=5) as junk:
        junk.sendall(b"x" * 100_000 + b"\n" + b'{"half')
    eventually(lambda: reader.value("malformed_lines_total") >= 3, 10)
    assert ask(door.port, chat()).status == 200
    reader.reaches(1, "lines_total")


def test_a_restarted_gateway_is_read_on_and_loses_nothing(observed: Observe) -> None:
    """Also one that restarts within a stream."""
    door, reader = observed(engines=1)
    assert ask(door.port, chat()).status == 200
    reader.reaches(1, "lines_total")
    door.engines[0].hold()
    stream = Stream(door.port)
    stream.read_some()
    reader.reaches(1, "in_flight", slot="s1")
    door.restart()
    door.engines[0].finish_all()
    stream.leave()
    reader.reaches(1, "gateway_up")
    for _ in range(3):
        assert ask(door.port, chat()).status == 200
    reader.reaches(4, "requests_total", outcome="ok")
    assert reader.value("lost_lines_total") == 0


def test_a_server_that_was_added_at_run_time_has_its_own_series_and_a_forged_one_has_none(
    observed: Observe,
) -> None:
    door, reader = observed(engines=1)
    assert ask(door.port, chat()).status == 200
    reader.reaches(1, "requests_total", slot="s1")
    door.command(f"add server chat-8b/s2 {door.engines[0].address} maxconn 2")
    door.command("enable server chat-8b/s2")
    door.command("disable server chat-8b/s1")
    assert ask(door.port, chat()).status == 200
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        forger.sendto(raw(server="s3"), ("127.0.0.1", reader.log))
    reader.reaches(1, "requests_total", slot="s2")
    reader.reaches(1, "requests_total", slot="other", pool="chat-8b")
    assert reader.value("requests_total") == 3


def test_a_flood_in_bursts_is_read_whole(observed: Observe) -> None:
    door, reader = observed(engines=2, limit=20, queue_bound=1000)
    for _ in range(10):
        assert Crowd(door.port).send(30).join() == [200] * 30
    reader.reaches(300, "lines_total")
    assert reader.value("requests_total", outcome="ok") == 300
    assert reader.value("lost_lines_total") == 0
    assert reader.value("malformed_lines_total") == 0


def test_a_gateway_that_is_gone_has_no_queue_rather_than_an_empty_one(make_door: MakeDoor) -> None:  # noqa: F811
    port = free_port()
    door = make_door(engines=1, log=f"127.0.0.1:{port}")
    with exporter(door, port) as reader:
        page = f"http://127.0.0.1:{reader.metrics}/metrics"
        assert 'trimtab_door_queue{pool="chat-8b"} 0.0' in requests.get(page, timeout=5).text
        door.down()
        reader.reaches(0, "gateway_up")
        assert "trimtab_door_queue{" not in requests.get(page, timeout=5).text


def test_the_trace_holds_each_request_and_no_key(observed: Observe, tmp_path: Path) -> None:
    trace = tmp_path / "door.csv"
    door, reader = observed("--trace", trace, engines=1)
    assert ask(door.port, chat(), headers={"authorization": "Bearer sk-secret"}).status == 200
    assert ask(door.port, chat("nobody-serves-this")).status == 404
    reader.reaches(2, "lines_total")
    text = trace.read_text()
    assert text.count("\n") == 2, "a header, and the request that reached a pool"
    assert "chat-8b" in text
    assert "sk-secret" not in text


@pytest.mark.parametrize("option", ["--log", "--metrics"])
def test_a_port_in_use_is_named_with_its_option(option: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["gateway-exporter", "--socket", str(tmp_path / "s"), "--log", "127.0.0.1:0"]
        arguments += ["--metrics", "127.0.0.1:0", option, address]
        told = CliRunner().invoke(main, arguments)
    assert (told.exit_code, f"cannot listen on {address}" in told.output) == (1, True)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:70000", "127.0.0.1:", "a b:1"])
def test_an_address_that_is_none_is_a_usage_error(address: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["gateway-exporter", "--socket", str(tmp_path / "s"), "--log", address])
    assert (told.exit_code, "is no host:port" in told.output) == (2, True)
