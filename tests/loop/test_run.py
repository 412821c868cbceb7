"""`trimtab run` as a process: whenever it is told to stop it ends cleanly, and it leaks no secret."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import Popen

import pytest

from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.adapters.sql.lease import FileLease
from controlplane.adapters.sql.open import open_reader
from controlplane.adapters.sql.reader import PageFilter
from controlplane.domain.ids import CycleKind
from controlplane.ports import InvalidConfig, Unavailable
from controlplane.wiring import Controller, Options, controller
from tests.adapters.policyfiles.files import POLICY, changed, house, write
from tests.support import eventually, running
from tests.telemetry.notifications import TOKEN, notification, post

START_S = 30.0
SECRET = "s3cret-of-the-house"


class Process:
    """One controller over files of its own; nobody answers at the gateway."""

    def __init__(self, folder: Path, process: Popen[bytes]) -> None:
        self.folder = folder
        self.process = process

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text("utf-8")

    @property
    def locked(self) -> bool:
        """Whether it leads: the file is there a moment before the lock is taken and its pid written."""
        lock = self.folder / "trimtab.db.lock"
        return lock.exists() and lock.stat().st_size > 0

    def port(self) -> int:
        """Where its page is; it says so when it is ready."""
        line = eventually(
            lambda: [each for each in self.output.splitlines() if each.startswith('{"metrics"')],
            START_S,
            because="no line with the port",
        )
        found: int = json.loads(line[0])["metrics"]
        return found

    def ends(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_S)


def files(folder: Path, prometheus: dict[str, object], **more: object) -> tuple[Path, Path, Path]:
    """Fleet file, policies and profiles of a small fleet."""
    fleet: dict[str, object] = {
        "cluster": "demo",
        "prometheus": {"timeout": "500ms", "deadline": "600ms", **prometheus},
        "gateways": [{"name": "edge", "kind": "haproxy", "socket": "nobody.sock"}],
        "database": {"url": "sqlite:///trimtab.db"},
        "cadence": {"weights": "500ms", "capacity": "2s"},
        "listen": {"host": "127.0.0.1", "port": 0},
        **more,
    }
    return write(folder, "fleet.yaml", fleet), *house(folder)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a place for bytecode: compiling every library anew would make each start take seconds."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}


@contextmanager
def started(folder: Path, prometheus: dict[str, object], environment: dict[str, str]) -> Iterator[Process]:
    fleet, policies, profiles = files(folder, prometheus)
    command: list[str | Path] = [sys.executable, "-m", "controlplane", "run", "--fleet", fleet]
    command += ["--policies", policies, "--profiles", profiles]
    with running(command, folder / "output", environment) as process:
        yield Process(folder, process)


@contextmanager
def here(folder: Path, prometheus: dict[str, object], **more: object) -> Iterator[Controller]:
    """The same controller within this process, running."""
    fleet, policies, profiles = files(folder, prometheus, **more)
    with controller(load_fleet(fleet), Options(policies, profiles)) as made:
        made.runner.start()
        try:
            yield made
        finally:
            made.runner.stop()


def at(port: int) -> dict[str, object]:
    return {"url": f"http://127.0.0.1:{port}"}


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as reply:
        text: str = reply.read().decode()
        return text


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A Prometheus that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def url(deaf: socket.socket) -> str:
    return f"http://127.0.0.1:{deaf.getsockname()[1]}"


def at_startup(run: Process, _deaf: socket.socket) -> None:
    eventually(lambda: run.locked, START_S, every_s=0.005)


def within_a_cycle(_run: Process, deaf: socket.socket) -> None:
    """A question has arrived and waits for its answer."""
    deaf.settimeout(START_S)
    deaf.accept()[0].close()


def after_some_cycles(run: Process, _deaf: socket.socket) -> None:
    done = 'trimtab_cycles_total{cluster="demo",kind="weights",result="done"} 2'
    eventually(lambda: done in page(run.port()), START_S)


Moment = Callable[[Process, socket.socket], None]


@pytest.mark.parametrize("moment", [at_startup, within_a_cycle, after_some_cycles])
def test_told_to_stop_it_ends_cleanly_at_any_moment_and_gives_the_lease_back(
    moment: Moment, tmp_path: Path, deaf: socket.socket, url: str, environment: dict[str, str]
) -> None:
    lease = FileLease(tmp_path / "trimtab.db")
    with started(tmp_path, {"url": url}, environment) as run:
        moment(run, deaf)
        assert run.process.poll() is None
        assert not lease.acquire()
        assert run.ends() == 0, run.output
    assert "Traceback" not in run.output
    assert lease.acquire()
    lease.release()


def test_a_second_controller_on_the_same_record_is_sent_away(tmp_path: Path, url: str) -> None:
    lease = FileLease(tmp_path / "trimtab.db")
    assert lease.acquire()
    with pytest.raises(Unavailable, match="another controller leads"), here(tmp_path, {"url": url}):
        pass
    lease.release()
    with here(tmp_path, {"url": url}):
        assert not lease.acquire()
    assert lease.acquire()
    lease.release()


def test_policies_that_turn_invalid_leave_the_last_good_ones_in_force(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trimtab")
    valid = 'trimtab_policies_valid{cluster="demo"} 1.0'
    with here(tmp_path, {"url": url}) as run:
        cycles = run.runner.health.beats[CycleKind.WEIGHTS]
        eventually(lambda: cycles.cycles and valid in page(run.endpoint.port), START_S)
        write(tmp_path / "policies", "chat.yaml", changed(POLICY, {"capacity.min": 99}))
        eventually(lambda: valid not in page(run.endpoint.port), START_S)
        before = cycles.cycles
        eventually(lambda: cycles.cycles >= before + 2, START_S)
        write(tmp_path / "policies", "chat.yaml", POLICY)
        eventually(lambda: valid in page(run.endpoint.port), START_S)
        assert cycles.errors == 0
        assert 'trimtab_pool_target_seconds{cluster="demo",' in page(run.endpoint.port)
    assert caplog.text.count("policies are invalid") == 1
    assert caplog.text.count("policies are valid again") == 1


def test_no_secret_is_said_when_prometheus_echoes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B-189, B-190: the token is absent from log, page and record even where the far side quotes it."""
    caplog.set_level(logging.DEBUG)
    write(tmp_path, "token", f"{SECRET}\n")
    with echoing() as (port, heard), here(tmp_path, at(port) | {"token_file": "token"}) as run:
        eventually(lambda: "trimtab_query_failures_total{" in page(run.endpoint.port), START_S)
        shown = page(run.endpoint.port)
    assert f"Bearer {SECRET}" in heard
    assert SECRET not in caplog.text
    assert SECRET not in shown
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("trimtab.db")]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def test_a_password_in_the_address_is_refused_without_being_repeated(tmp_path: Path) -> None:
    """B-189: an address is logged and labelled; a secret has its own place."""
    fleet, *_ = files(tmp_path, {"url": f"http://ops:{SECRET}@127.0.0.1:9"})
    with pytest.raises(InvalidConfig, match="prometheus") as caught:
        load_fleet(fleet)
    assert SECRET not in str(caught.value)


@contextmanager
def echoing() -> Iterator[tuple[int, list[str]]]:
    """A Prometheus that says 401 and quotes the header back."""
    heard: list[str] = []

    class Echo(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["content-length"]))
            body = f"denied: {self.headers['Authorization']}".encode()
            self.send_response(401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_page_that_is_sent_to_the_controller_is_on_its_record(tmp_path: Path) -> None:
    (tmp_path / "alerts-token").write_text(TOKEN)
    record = f"sqlite:///{tmp_path / 'trimtab.db'}"
    with here(tmp_path, at(9), webhook={"token_file": "alerts-token"}) as made:
        reader = open_reader(record)
        assert reader.pages(PageFilter(), 10) == []
        assert post(made.endpoint.port, notification()) == (200, "1 kept\n")
        (page,) = reader.pages(PageFilter(), 10)
        reader.close()
    assert (page.alertname, page.pool, page.notifications) == ("P95OverTarget", "chat-8b", 1)


def test_a_webhook_whose_token_cannot_be_read_is_found_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidConfig, match="alerts-token: the secret file cannot be read"),
        here(tmp_path, at(9), webhook={"token_file": "alerts-token"}),
    ):
        pass
