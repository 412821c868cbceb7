"""How many lines never came: the gateway's own counts against the lines that were read. Pure.

A request counts as ended where the gateway's total no longer holds it among those in flight. Its line may
still be on its way, so a difference is a loss only when it has lasted: the least difference of the
last looks is what cannot be explained by lines under way, as long as the reader catches up once among
them. Losses are never taken back.

Whose line it is, and since when lines are due, is told by its end stamp (`date(0,ms)` where HAProxy writes
the line, right after it took the request off those in flight):

- A process is its pid and its start: under one pid a restart begins a new count.
- Of a process that began under our eyes every line is due, from its start on.
- Of any other, lines are due from our first look at it on. Older ones still come out of a ring; by their
  stamps they make up for no loss. The same holds anew where a clock or a count was set back.

A stamp is as old as the turn of HAProxy's loop that wrote it, and whole seconds are kept of it, so lines of
up to `MARGIN_S` + 1 s before count as due: as many losses may be hidden, and none is invented. A line without
a stamp counts for whoever has its pid: what a ring still held of it hides as many losses.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

LOOKS = 10
MARGIN_S = 1.0
PROCESSES = 8
"""Remembered at most; those that the runtime API named longest ago go first."""

_SLACK_S = 0.25
"""Clocks that differ by less were not set."""

_RACE = 16
"""A count that falls by less was read within a change, by the gateway's threads, and not set back."""

Key = tuple[int, str, int | None]
"""The gateway's pid, the pool, and the second of the end stamp (epoch)."""

Lines = Mapping[Key, int]
"""Lines that came since the look before."""

ANYBODYS: Key = (-2, "", None)
"""The key of lines of which nothing is known any more. A process that is newly named is given them all."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the gateway said: its process, and by pool how many requests had ended.

    Epoch seconds: `started_s` by the gateway's word, `asked_s` and `answered_s` by ours. `uptime_s` does not
    follow a clock that is set.
    """

    pid: int
    started_s: float
    uptime_s: float
    asked_s: float
    answered_s: float
    ended: Mapping[str, int]

    def slip(self) -> tuple[float, float]:
        """Least and most that our clock stands ahead of the gateway's start and uptime, seconds."""
        began = self.started_s + self.uptime_s
        return self.asked_s - began, self.answered_s - began

    def agrees(self) -> bool:
        """Whether our clock and the gateway's start and uptime tell one time."""
        low, high = self.slip()
        return low <= _SLACK_S and high >= -_SLACK_S


@dataclass(slots=True)
class _Pool:
    """`before`: what had ended before lines were due."""

    before: int
    ended: int = 0
    lines: int = 0
    differences: deque[int] = field(default_factory=lambda: deque(maxlen=LOOKS))
    lost: int = 0

    def look(self, ended: int) -> None:
        self.ended = ended
        self.differences.append(ended - self.before - self.lines)
        if len(self.differences) == LOOKS:
            self.lost = max(self.lost, min(self.differences))


@dataclass(slots=True)
class _Process:
    """`due_s`: the end stamp from which on lines are due."""

    started_s: float
    slip: tuple[float, float]
    due_s: float
    pools: dict[str, _Pool]

    def add(self, pool: str, second: int | None, count: int) -> None:
        """Pools that the gateway never named are of no process."""
        if pool in self.pools and (second is None or second + 1 > self.due_s):
            self.pools[pool].lines += count

    def look(self, look: Look) -> None:
        low, high = look.slip()
        self.slip = max(low, self.slip[0]), min(high, self.slip[1])
        for pool, ended in look.ended.items():
            self.pools.setdefault(pool, _Pool(ended)).look(ended)

    def continues(self, look: Look) -> bool:
        """Whether this is what was seen before: the same start, no clock set, and no count set back."""
        low, high = look.slip()
        steady = low <= self.slip[1] + _SLACK_S and high >= self.slip[0] - _SLACK_S
        return self.started_s == look.started_s and steady and not self._fell(look)

    def _fell(self, look: Look) -> bool:
        return any(look.ended.get(pool, seen.ended) < seen.ended - _RACE for pool, seen in self.pools.items())


@dataclass(slots=True)
class Losses:
    """Lost lines by pool, since this process reads: from `began_s` on, epoch seconds."""

    began_s: float
    _processes: dict[int, _Process] = field(default_factory=dict)
    _held: Lines = field(default_factory=dict)
    _looked_s: tuple[float, ...] = ()
    _of_earlier: Counter[str] = field(default_factory=Counter)

    def look(self, look: Look, early: Lines, late: Lines) -> None:
        """Compare once. `early`: lines that came before the gateway was asked, `late`: since."""
        for lines in (early, late):
            _add(self._processes, lines)
        known = self._processes.pop(look.pid, None)
        if known is None or not known.continues(look):
            self._retire(known)
            whole = self._is_whole(look, known)
            known = self._whole(look, early, late) if whole else _from_now_on(look, late)
        known.look(look)
        self._processes[look.pid] = known
        self._forget()
        # A process may write before it is named: its lines are held until the next look.
        self._held = Counter(early) + Counter(late)
        self._looked_s = (*self._looked_s, look.answered_s)[-2:]

    def by_pool(self) -> Mapping[str, int]:
        """Lost lines by pool."""
        found = Counter(self._of_earlier)
        for process in self._processes.values():
            found.update({pool: seen.lost for pool, seen in process.pools.items()})
        return found

    def _is_whole(self, look: Look, known: _Process | None) -> bool:
        """Whether it began under our eyes, so that all its lines are in hand: those held, and those since."""
        another = known is None or known.started_s != look.started_s
        since_s = self._looked_s[0] if len(self._looked_s) > 1 else self.began_s
        return another and look.agrees() and look.started_s > since_s

    def _whole(self, look: Look, early: Lines, late: Lines) -> _Process:
        begun = _Process(look.started_s, look.slip(), look.started_s - MARGIN_S, _pools(look, whole=True))
        for lines in (self._held, early, late):
            _give(look.pid, begun, lines)
        return begun

    def _forget(self) -> None:
        while len(self._processes) > PROCESSES:
            self._retire(self._processes.pop(next(iter(self._processes))))

    def _retire(self, process: _Process | None) -> None:
        if process is not None:
            self._of_earlier.update({pool: seen.lost for pool, seen in process.pools.items()})


def _from_now_on(look: Look, late: Lines) -> _Process:
    """What came before we asked had ended by then: the count to begin from holds it."""
    begun = _Process(look.started_s, look.slip(), look.asked_s - MARGIN_S, _pools(look, whole=False))
    _give(look.pid, begun, late)
    return begun


def _pools(look: Look, *, whole: bool) -> dict[str, _Pool]:
    return {pool: _Pool(0 if whole else ended) for pool, ended in look.ended.items()}


def _give(pid: int, begun: _Process, lines: Lines) -> None:
    _add({pid: begun}, lines)
    for pool in begun.pools.values():
        pool.lines += lines.get(ANYBODYS, 0)


def _add(processes: Mapping[int, _Process], lines: Lines) -> None:
    for (pid, pool, second), count in lines.items():
        if pid in processes:
            processes[pid].add(pool, second, count)
