"""Helpers that many tests share: waiting without sleeping blind, ports, and servers that end."""

from __future__ import annotations

import contextlib
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TOOLS = Path(__file__).resolve().parents[1] / ".tools/bin"
"""The servers that `make setup` brought."""

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Reference data beside the checkout; tests that read it skip where it is absent."""


def eventually(predicate: Callable[[], T], deadline_s: float, every_s: float = 0.05, because: str = "") -> T:
    """The first truthy answer of `predicate`; AssertionError, with `because`, after `deadline_s`.

    The last answer stands in the message. Exceptions of the predicate are not swallowed.
    """
    end = time.monotonic() + deadline_s
    while not (answer := predicate()):
        if time.monotonic() > end:
            raise AssertionError(
                f"not within {deadline_s} s: {because or predicate}; last answer: {answer!r}"
            )
        time.sleep(every_s)
    return answer


def free_port() -> int:
    """A loopback port that nobody held a moment ago, over TCP or UDP.

    Below the range the kernel lends to outgoing connections: a port out of that range can be
    gone again before the server that was promised it binds.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            return _held_once(port)
    raise AssertionError("no free port between 20000 and 32000 in 1000 tries")


def _held_once(port: int) -> int:
    """The port, after it was bound and let go over TCP and UDP; OSError where somebody holds it."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        stream.bind(("127.0.0.1", port))
        datagrams.bind(("127.0.0.1", port))
    return port


def answers(port: int) -> bool:
    """Whether somebody accepts connections on a loopback port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
        return True
    return False


def start(
    command: Sequence[str | Path],
    output: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: pwd.struct_passwd | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server with its output in a file: a pipe nobody reads would hang the run. `user`: another one
    than we are, which only root may choose."""
    with output.open("ab") as sink:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=env,
            cwd=cwd,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )


def stop(process: subprocess.Popen[bytes], deadline_s: float = 5.0) -> int:
    """End one process by its own pid: SIGTERM, a deadline, then SIGKILL. Answers its exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], output: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server for the length of a `with` block."""
    process = start(command, output, env, cwd)
    try:
        yield process
    finally:
        stop(process)
