"""Processes are started in groups of their own, and ended by their own pid, whatever they do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.demo import fleet, processes
from controlplane.demo.processes import Crew, DemoError, Stopped, died, group_lives
from tests.support import eventually

SLEEPS = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
DEAF = [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); " + SLEEPS[2]]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path, threading.Event().is_set)
    yield made
    made.end_all()


def test_each_process_leads_a_group_of_its_own(crew: Crew) -> None:
    """So that Ctrl-C on the terminal reaches us alone, and we end the others in order."""
    child = crew.start("one", SLEEPS)
    assert os.getpgid(child.process.pid) == child.process.pid
    assert os.getpgid(child.process.pid) != os.getpgid(0)


def test_ending_leaves_nothing_and_says_so(crew: Crew) -> None:
    child = crew.start("one", SLEEPS)
    assert group_lives(child.process.pid)
    crew.end_all()
    assert not group_lives(child.process.pid)
    assert crew.left() == 0
    assert not crew.children


def test_the_last_started_ends_first(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    end = processes.Child.end

    def noted(child: processes.Child) -> None:
        ended.append(child.name)
        end(child)

    monkeypatch.setattr(processes.Child, "end", noted)
    for name in ("twin", "gateway", "traffic"):
        crew.start(name, SLEEPS)
    crew.end_all()
    assert ended == ["traffic", "gateway", "twin"]


def test_a_process_that_ignores_sigterm_is_killed_after_the_deadline(crew: Crew) -> None:
    child = crew.start("deaf", DEAF)
    eventually(lambda: child.first_line() == "ready", 10.0)
    child.end(deadline_s=0.2)
    assert child.process.returncode == -signal.SIGKILL


def test_a_process_that_is_stopped_by_a_signal_is_ended_as_well(crew: Crew) -> None:
    child = crew.start("hanging", SLEEPS)
    eventually(lambda: child.first_line() == "ready", 10.0)
    child.send(signal.SIGSTOP)
    child.end()
    assert child.process.returncode == -signal.SIGTERM


def test_a_death_is_told_with_its_last_words(crew: Crew) -> None:
    child = crew.start("dies", [sys.executable, "-c", "import sys; sys.exit('the port is in use')"])
    with pytest.raises(DemoError, match=r"dies ended with status 1.*\n.*the port is in use"):
        crew.wait_for(child, lambda: False, "answer", 10.0)


def test_a_kill_is_told_by_its_signal(crew: Crew) -> None:
    child = crew.start("killed", SLEEPS)
    child.process.kill()
    child.process.wait()
    assert "was killed by signal 9" in died(child)


def test_a_program_that_does_not_exist_is_a_clear_error(crew: Crew) -> None:
    with pytest.raises(DemoError, match="ghost cannot be started"):
        crew.start("ghost", ["/nonexistent/ghost"])


def test_waiting_ends_when_somebody_asks_us_to_stop(tmp_path: Path) -> None:
    stop = threading.Event()
    crew = Crew(tmp_path, stop.is_set)
    try:
        child = crew.start("slow", SLEEPS)
        with pytest.raises(Stopped):
            crew.wait_for(child, lambda: stop.set() or False, "answer", 60.0)  # type: ignore[func-returns-value]
        with pytest.raises(Stopped):
            crew.start("another", SLEEPS)
        assert [each.name for each in crew.children] == ["slow"]
    finally:
        crew.end_all()


def test_what_never_gets_ready_is_given_up_by_name(crew: Crew) -> None:
    child = crew.start("slow", SLEEPS)
    with pytest.raises(DemoError, match=r"slow: no answer within 0\.1 s"):
        crew.wait_for(child, lambda: False, "answer", 0.1)


def test_a_deep_folder_gets_a_socket_that_can_be_bound(tmp_path: Path) -> None:
    """A Unix socket's path has some 100 bytes, a folder's has not."""
    near, deep = Path("/t"), tmp_path / ("deep/" * 30)
    assert _places(near).socket == near / "gateway.sock"
    assert len(os.fsencode(_places(deep).socket)) <= fleet.SOCKET_PATH_MAX
    assert _places(deep).socket == _places(deep).socket != _places(deep / "other").socket


def _places(folder: Path) -> fleet.Places:
    return fleet.Places(folder, folder / "trimtab.db", 1, 2, 3, 4)
