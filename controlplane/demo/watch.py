"""Who shows a demonstration: plain lines, or a live picture. Both read the record and the results."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from controlplane.demo.act import Actor, Mark
from controlplane.demo.record import RecordFile
from controlplane.demo.scene import Decided, Scene, instances_apart, pool_rows
from controlplane.demo.stage import Stage, fetch
from controlplane.demo.view import picture
from controlplane.domain.ids import CycleKind, DecisionId
from controlplane.domain.words import sentence
from controlplane.ports import PortError
from controlplane.traffic.summary import quantiles

NEWS_S = 1.0
PICTURE_S = 1.0
SHOWN_DECISIONS = 6
KEPT = 2_000


@dataclass(slots=True)
class Tail:
    """Follows a results file: counts, and the last latenesses, without reading it twice."""

    path: Path
    counts: Counter[str] = field(default_factory=Counter)
    lateness: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _offset: int = 0

    def read(self) -> None:
        """Take what was written since."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self._offset)
            whole, _, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + 1 if whole else 0
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
        self._seen: set[DecisionId] = set()
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
        for at, id_, words in reversed(changes(self._record, SHOWN_DECISIONS)):
            if id_ not in self._seen:
                self._seen.add(id_)
                self._echo(f"[{at - start:5.0f} s]   {words}")


class Picture:
    """A live picture, drawn anew every second."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._record: RecordFile | None = None
        self._tail: Tail | None = None
        self._due = 0.0
        self.scene: Scene | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line above the picture."""
        self._live.console.print(text)

    def phase(self, _actor: Actor, _mark: Mark) -> None:
        """A phase begins: draw at once."""
        self._due = 0.0

    def tick(self, actor: Actor) -> None:
        """Draw, once a second."""
        stage = actor.stage
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PICTURE_S
        self._record = self._record or RecordFile(stage.places.database)
        if self._tail is None or self._tail.path != stage.plays[-1]:
            self._tail = Tail(stage.plays[-1])
        self._tail.read()
        self.scene = scene(actor, self._record, self._tail)
        self._live.update(picture(self.scene), refresh=True)


def scene(actor: Actor, record: RecordFile, tail: Tail) -> Scene:
    """The present moment. What the record can't say now is left out."""
    phase = actor.marks[-1].phase
    weights = capacity = None
    decided: Sequence[tuple[float, DecisionId, str]] = ()
    with contextlib.suppress(PortError):
        weights, capacity = record.newest(CycleKind.WEIGHTS), record.newest(CycleKind.CAPACITY)
        decided = changes(record, SHOWN_DECISIONS)
    whom = f": {actor.slot}" if phase.name == "throttled" else ""
    return Scene(
        title=phase.title + whom,
        look=phase.look,
        elapsed_s=actor.clock() - actor.marks[0].from_at,
        duration_s=actor.stage.wish.duration_s,
        pools=pool_rows(weights, capacity),
        apart=instances_apart(weights),
        decided=[Decided(at, words) for at, _, words in decided],
        requests=tail.words(),
        generator_lag_s=quantiles(tail.lateness)["p99"],
        twin_lag_s=_twin_lag(actor.stage),
    )


def changes(record: RecordFile, limit: int) -> Sequence[tuple[float, DecisionId, str]]:
    """The newest decisions that changed something, newest first: instant, id and why."""
    with contextlib.suppress(PortError):
        return [(each.at, each.id, sentence(each.decision)) for each in record.changes(limit)]
    return ()


def _twin_lag(stage: Stage) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        lag = fetch(f"http://127.0.0.1:{stage.places.twin}/truth", 1.0)["lag_p99_s"]
        return None if lag is None else float(lag)
    return None
