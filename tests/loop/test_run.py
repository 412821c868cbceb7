"""`trimtab run` as a process: whenever it is told to stop it ends cleanly, and it leaks no secret."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from controlplane.adapters.sql.lease import FileLease
from tests.adapters.policyfiles.files import POLICY, changed, house, write
from tests.support import eventually, running

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
        return (self.folder / "trimtab.db.lock").exists()

    def port(self) -> int:
        """Where its page is; it says so when it is ready."""
        line = eventually(
            lambda: [each for each in self.output.splitlines() if each.startswith('{"metrics"')],
            START_S,
            because="no line with the port",
        )
        found: int = json.loads(line[0])["metrics"]
        return found

    def page(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}/metrics", timeout=10.0) as reply:
            text: str = reply.read().decode()
            return text

    def ends(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_S)


@contextmanager
def controller(folder: Path, prometheus: dict[str, object]) -> Iterator[Process]:
    fleet = {
        "cluster": "demo",
        "prometheus": {"timeout": "500ms", "deadline": "600ms", **prometheus},
        "gateways": [{"name": "edge", "kind": "haproxy", "socket": "nobody.sock"}],
        "database": {"url": "sqlite:///trimtab.db"},
        "cadence": {"weights": "1s", "capacity": "2s"},
        "listen": {"host": "127.0.0.1", "port": 0},
    }
    policies, profiles = house(folder)
    path = write(folder, "fleet.yaml", fleet)
    command = [sys.executable, "-m", "controlplane", "run", "--fleet", path]
    command += ["--policies", policies, "--profiles", profiles]
    with running(command, folder / "output") as process:
        yield Process(folder, process)


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


def when_ready(run: Process, _deaf: socket.socket) -> None:
    run.port()


def within_a_cycle(_run: Process, deaf: socket.socket) -> None:
    """A question has arrived and waits for its answer."""
    deaf.settimeout(START_S)
    deaf.accept()[0].close()


def after_some_cycles(run: Process, _deaf: socket.socket) -> None:
    eventually(
        lambda: 'trimtab_cycles_total{cluster="demo",kind="weights",result="done"} 2' in run.page(), START_S
    )


@pytest.mark.parametrize("moment", [at_startup, when_ready, within_a_cycle, after_some_cycles])
def test_told_to_stop_it_ends_cleanly_at_any_moment_and_gives_the_lease_back(
    moment: object, tmp_path: Path, deaf: socket.socket, url: str
) -> None:
    lease = FileLease(tmp_path / "trimtab.db")
    with controller(tmp_path, {"url": url}) as run:
        moment(run, deaf)  # type: ignore[operator]
        assert run.process.poll() is None
        assert not lease.acquire()
        assert run.ends() == 0, run.output
    assert "Traceback" not in run.output
    assert lease.acquire()
    lease.release()


def test_a_second_controller_on_the_same_record_is_sent_away(tmp_path: Path, url: str) -> None:
    with controller(tmp_path, {"url": url}) as first:
        first.port()
        (tmp_path / "output").rename(tmp_path / "output-of-the-first")
        with controller(tmp_path, {"url": url}) as second:
            assert second.process.wait(START_S) == 1
            assert "another controller leads" in second.output
            assert "Traceback" not in second.output
        assert first.process.poll() is None


def test_policies_that_turn_invalid_leave_the_last_good_ones_in_force(tmp_path: Path, url: str) -> None:
    with controller(tmp_path, {"url": url}) as run:
        eventually(lambda: 'trimtab_policies_valid{cluster="demo"} 1.0' in run.page(), START_S)
        write(tmp_path / "policies", "chat.yaml", changed(POLICY, {"capacity.min": 99}))
        eventually(lambda: 'trimtab_policies_valid{cluster="demo"} 0.0' in run.page(), START_S)
        done = run.page().count('result="done"')
        assert done
        write(tmp_path / "policies", "chat.yaml", POLICY)
        eventually(lambda: 'trimtab_policies_valid{cluster="demo"} 1.0' in run.page(), START_S)
        assert run.ends() == 0
    assert run.output.count("policies are invalid") == 1
    assert run.output.count("policies are valid again") == 1


def test_no_secret_is_said_when_prometheus_echoes_it(tmp_path: Path) -> None:
    """B-189, B-190: the token is absent from log, page and record even where the far side quotes it."""
    with echoing() as port:
        write(tmp_path, "token", f"{SECRET}\n")
        with controller(tmp_path, {"url": f"http://127.0.0.1:{port}", "token_file": "token"}) as run:
            eventually(lambda: "trimtab_query_failures_total{" in run.page(), START_S)
            page = run.page()
            assert run.ends() == 0
    assert SECRET not in run.output
    assert SECRET not in page
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("trimtab.db")]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def test_a_password_in_the_address_is_refused_without_being_repeated(tmp_path: Path) -> None:
    """B-189: an address is logged and labelled; a secret has its own place."""
    with controller(tmp_path, {"url": f"http://ops:{SECRET}@127.0.0.1:9"}) as run:
        assert run.process.wait(START_S) == 1
    assert "prometheus" in run.output
    assert SECRET not in run.output


@contextmanager
def echoing() -> Iterator[int]:
    """A Prometheus that says 401 and quotes the header back."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Echo(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
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
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
