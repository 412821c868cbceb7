"""Who shows a demonstration: plain lines, or a live picture. Both read the record and the results."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from controlplane.adapters.sql.reader import Lent, Page
from controlplane.demo import moved
from controlplane.demo.act import Actor, Mark
from controlplane.demo.record import RecordFile
from controlplane.demo.run import Watcher
from controlplane.demo.scene import Decided, Scene, instances_apart, pool_rows
from controlplane.demo.stage import Stage, fetch
from controlplane.demo.timeline import Deed
from controlplane.demo.view import picture, svg
from controlplane.domain.ids import CycleKind, DecisionId
from controlplane.domain.words import sentence
from controlplane.ports import PortError
from controlplane.traffic.summary import quantiles

NEWS_S = 1.0
PICTURE_S = 1.0
SHOWN_DECISIONS = 6
READ_AHEAD = 5
DRAWN_AT = 0.9
"""Share of the throttled phase after which the drawing is made."""

KEPT = 2_000


@dataclass(slots=True)
class Tail:
    """Follows results files: counts, and the last latenesses, without reading a line twice."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self, paths: Iterable[Path]) -> None:
        """Take what was written since."""
        for path in paths:
            with contextlib.suppress(OSError):
                self._take(path)

    def _take(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offsets[path] = offset + len(whole) + len(newline)
        for line in whole.splitlines():
            row = json.loads(line)
            self.counts[row["outcome"]] += 1
            self.lateness.append(row["lateness_s"])

    def words(self) -> str:
        """The counts, as people read them."""
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))


class Lines:
    """Plain lines: phases, and decisions that changed something, as they come."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._record: RecordFile | None = None
        self._said: set[str] = set()
        self._due = 0.0

    def say(self, text: str) -> None:
        """A line."""
        self._echo(text)

    def phase(self, actor: Actor, mark: Mark) -> None:
        """A phase begins."""
        whom = f" ({actor.slot})" if mark.phase.name == "throttled" else ""
        self._echo(f"[{mark.phase.from_s:5.0f} s] {mark.phase.title}{whom}. Look: {mark.phase.look}.")

    def tick(self, actor: Actor) -> None:
        """New decisions, once a second."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + NEWS_S
        self._record = self._record or RecordFile(actor.stage.places.database)
        start = actor.marks[0].from_at
        for at, _, words in reversed(changes(self._record, SHOWN_DECISIONS)):
            what, _, _ = words.partition(" because ")
            if what not in self._said:
                self._said.add(what)
                self._echo(f"[{at - start:5.0f} s]   {words}")


class Eye:
    """Looks at a running demonstration from outside: its record, its results, the twin's own word."""

    def __init__(self) -> None:
        self._record: RecordFile | None = None
        self._tail = Tail()

    def scene(self, actor: Actor) -> Scene:
        """The present moment."""
        stage = actor.stage
        self._record = self._record or RecordFile(stage.places.database)
        self._tail.read(stage.plays)
        return scene(actor, self._record, self._tail)


class Picture:
    """A live picture, drawn anew every second."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._eye = Eye()
        self._due = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line above the picture."""
        self._live.console.print(text, highlight=False)

    def phase(self, _actor: Actor, _mark: Mark) -> None:
        """A phase begins: draw at once."""
        self._due = 0.0

    def tick(self, actor: Actor) -> None:
        """Draw, once a second."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PICTURE_S
            self._live.update(picture(self._eye.scene(actor)), refresh=True)


class Sketch:
    """Passes everything on, and saves one view as a drawing: near the end of the throttled phase,
    where there is most to see."""

    def __init__(self, watcher: Watcher, path: Path) -> None:
        self._watcher = watcher
        self._path = path
        self._drawn = False

    def say(self, text: str) -> None:
        """As the other does."""
        self._watcher.say(text)

    def phase(self, actor: Actor, mark: Mark) -> None:
        """As the other does."""
        self._watcher.phase(actor, mark)

    def tick(self, actor: Actor) -> None:
        """As the other does, and draw when the time has come."""
        self._watcher.tick(actor)
        mark = actor.marks[-1]
        length_s = mark.phase.to_s - mark.phase.from_s
        late = actor.clock() > mark.from_at + DRAWN_AT * length_s
        if mark.phase.deed is Deed.THROTTLE and late and not self._drawn:
            self._drawn = True
            self._path.write_text(svg(Eye().scene(actor)), encoding="utf-8")


def scene(actor: Actor, record: RecordFile, tail: Tail) -> Scene:
    """The present moment. What the record can't say now is left out."""
    phase = actor.marks[-1].phase
    weights = capacity = None
    decided: Sequence[tuple[float, DecisionId, str]] = ()
    loans: Sequence[Lent] = ()
    pages: Sequence[Page] = ()
    with contextlib.suppress(PortError):
        weights, capacity = record.newest(CycleKind.WEIGHTS), record.newest(CycleKind.CAPACITY)
        decided = changes(record, SHOWN_DECISIONS)
        loans, pages = record.loans(), record.pages()
    whom = f": {actor.slot}" if phase.name == "throttled" else ""
    return Scene(
        title=phase.title + whom,
        look=phase.look,
        elapsed_s=actor.clock() - actor.marks[0].from_at,
        duration_s=actor.stage.wish.duration_s,
        pools=pool_rows(weights, capacity),
        apart=instances_apart(weights),
        decided=[Decided(at, words) for at, _, words in decided],
        loans=moved.loans(loans),
        pages=moved.pages(pages),
        requests=tail.words(),
        generator_lag_s=quantiles(tail.lateness)["p99"],
        twin_lag_s=_twin_lag(actor.stage),
    )


def changes(record: RecordFile, limit: int) -> Sequence[tuple[float, DecisionId, str]]:
    """The newest decisions that changed something, newest first: instant, id and why.

    What is wanted again and again (and only recorded) stands once.
    """
    found: dict[tuple[CycleKind, str], tuple[float, DecisionId, str]] = {}
    with contextlib.suppress(PortError):
        for each in record.changes(READ_AHEAD * limit):
            words = sentence(each.decision)
            what, _, _ = words.partition(" because ")
            found.setdefault((each.id.cycle.kind, what), (each.at, each.id, words))
    return list(found.values())[:limit]


def _twin_lag(stage: Stage) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        lag = fetch(f"http://127.0.0.1:{stage.places.twin}/truth", 1.0)["lag_p99_s"]
        return None if lag is None else float(lag)
    return None
