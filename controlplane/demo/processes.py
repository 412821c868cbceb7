"""Processes that a demonstration starts: each in a group of its own, each ended by its own pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TAIL_LINES = 15
TERM_DEADLINE_S = 8.0
KILL_DEADLINE_S = 2.0
POLL_S = 0.05


class DemoError(Exception):
    """The demonstration cannot go on; the text says why and what to do."""


class Stopped(Exception):
    """Somebody asked us to stop: not an error."""


@dataclass(slots=True)
class Child:
    """One process. Its output goes to files: a pipe that nobody reads would hang it."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    log: Path
    out: Path

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def tail(self) -> str:
        """The last lines of what it said on standard error."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:])
        return ""

    def first_line(self) -> str:
        """The first whole line of its standard output, empty until it is there."""
        line, end, _ = self.out.read_text("utf-8", "replace").partition("\n")
        return line if end else ""

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        if self.alive:
            self.process.send_signal(number)

    def cpu_s(self) -> float:
        """Processor seconds that it has used (Linux; 0 where that can't be read)."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            after_name = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def end(self, deadline_s: float = TERM_DEADLINE_S) -> None:
        """SIGTERM (a stopped process is woken for it), a deadline, SIGKILL."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # then `left` counts it
                self.process.wait(KILL_DEADLINE_S)


def group_lives(pid: int) -> bool:
    """Whether any process is left in the group that the process `pid` led."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(slots=True)
class Crew:
    """All processes of one demonstration, in the order of their start.

    `stopping` is asked while anything is waited for; when it says yes, `Stopped` is raised.
    """

    folder: Path
    stopping: Callable[[], bool]
    children: list[Child] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    _ended: list[int] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Start one. Raises DemoError where it cannot be started, Stopped where we should end."""
        self.check()
        parts = [str(part) for part in command]
        log, out = self.folder / f"{name}.log", self.folder / f"{name}.out"
        with log.open("ab") as errors, out.open("wb") as output:
            try:
                process = subprocess.Popen(
                    parts, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, process_group=0
                )
            except OSError as error:
                raise DemoError(f"{name} cannot be started: {error}") from error
        child = Child(name, parts, process, log, out)
        self.children.append(child)
        return child

    def wait_for(self, child: Child, ready: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Until `ready` says yes. Raises DemoError where the child dies first or time runs out."""
        end = time.monotonic() + deadline_s
        while not ready():
            self.check()
            if not child.alive:
                raise DemoError(died(child))
            if time.monotonic() > end:
                raise DemoError(f"{child.name}: no {what} within {deadline_s:g} s\n{child.tail()}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raises Stopped where somebody asked us to end."""
        if self.stopping():
            raise Stopped

    def end(self, child: Child) -> None:
        """End one and forget it; its group is looked at again by `left`."""
        self.cpu_s[child.name] = round(self.cpu_s.get(child.name, 0.0) + child.cpu_s(), 2)
        child.end()
        self.children.remove(child)
        self._ended.append(child.process.pid)

    def end_all(self) -> None:
        """End everything, the last started first."""
        for child in reversed(list(self.children)):
            self.end(child)

    def left(self) -> int:
        """How many of the groups that were ended still hold a process."""
        return sum(group_lives(pid) for pid in self._ended)


def died(child: Child) -> str:
    """What to say of a process that ended by itself."""
    status = child.process.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{child.name} {ended}; its last words:\n{child.tail() or '(none)'}"
