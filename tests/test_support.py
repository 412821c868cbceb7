"""The helpers that all tests lean on do what they promise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import answers, eventually, free_port, running, start, stop

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(1)
"""


def test_eventually_gives_the_first_true_answer() -> None:
    answers_in_turn = iter([0, "", 7, 8])
    assert eventually(lambda: next(answers_in_turn), deadline_s=5, every_s=0) == 7


def test_eventually_says_why_and_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match="the moon is up; last answer: 0"):
        eventually(lambda: 0, deadline_s=0, because="the moon is up")


def test_a_server_answers_inside_its_block_and_is_gone_after(tmp_path: Path) -> None:
    port = free_port()
    assert not answers(port)
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with running(command, tmp_path / "log") as process:
        assert eventually(lambda: answers(port), 20)
    assert not answers(port)
    assert process.poll() is not None


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", STUBBORN], tmp_path / "log")
    eventually(lambda: "ready" in (tmp_path / "log").read_text(), 20)
    assert stop(process, deadline_s=0.2) == -9


def test_stopping_what_has_ended_gives_its_status(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log")
    eventually(lambda: process.poll() is not None, 20)
    assert stop(process) == 3
