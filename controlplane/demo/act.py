"""Carries the story out: what is done when a phase begins, and undone when it ends."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.demo.fleet import STARRED
from controlplane.demo.processes import DemoError, died
from controlplane.demo.stage import Stage, fetch, start_crowd, start_prometheus, targets, write_targets
from controlplane.demo.timeline import Deed, Phase

FACTOR = 0.4
REFRESH_S = 5.0
"""How often the twin's lists are looked at again: an instance that starts anew has a new id."""

TICK_S = 0.25
SHARES: Mapping[Deed, float] = {Deed.EMPTY: 0.0, Deed.HALF: 0.5}
"""What is left of the target lists in two of the failures."""


@dataclass(slots=True)
class Mark:
    """When a phase really was, epoch seconds. `effective_at`: when its deed showed (None: never,
    or nothing was done)."""

    phase: Phase
    from_at: float
    to_at: float | None = None
    effective_at: float | None = None


@dataclass(slots=True)
class Actor:
    """Does the deeds. `slot`: whom the throttle hits, drawn by seed; `marks`: what was done when;
    `share`: of the targets that Prometheus is told of."""

    stage: Stage
    clock: Callable[[], float] = time.time
    marks: list[Mark] = field(default_factory=list)
    slot: str = ""
    share: float = 1.0
    _full: int = 0
    _listed: Mapping[str, list[Any]] = field(default_factory=dict)
    _refreshed: float = 0.0

    def begin(self, phase: Phase) -> Mark:
        """Start a phase and do its deed."""
        mark = Mark(phase, self.clock())
        self.marks.append(mark)
        if self._do(phase):
            mark.effective_at = self.clock()
        return mark

    def end(self, mark: Mark) -> None:
        """End a phase: a failure of the metrics source is mended, a throttled card stays so."""
        mark.to_at = self.clock()
        self._undo(mark.phase.deed)

    def tick(self, mark: Mark) -> None:
        """What is to be done all the time. Raises DemoError where a process died."""
        for child in self.stage.crew.children:
            if not child.alive and not (child.name.startswith("traffic") and child.process.returncode == 0):
                raise DemoError(died(child))
        if mark.effective_at is None and mark.phase.deed in SHARES and self._shows():
            mark.effective_at = self.clock()
        if self.clock() - self._refreshed > REFRESH_S:
            self._write_targets()

    def clear(self) -> None:
        """Give the throttled card its speed back."""
        if self.slot:
            self._twin("DELETE", f"/faults/{self.slot}", None)

    def _do(self, phase: Phase) -> bool:
        """Do its deed; whether it is in force at once."""
        deed, prometheus = phase.deed, self.stage.child("prometheus")
        if deed is Deed.THROTTLE:
            self._throttle()
        elif deed is Deed.SURGE:
            start_crowd(self.stage, phase.to_s - phase.from_s)
        elif deed is Deed.STOP and prometheus is not None:
            self.stage.crew.end(prometheus)
        elif deed is Deed.HANG and prometheus is not None:
            prometheus.send(signal.SIGSTOP)
        elif deed in SHARES:
            self._full = self._seen() or 0
            self.share = SHARES[deed]
            self._write_targets()
            return False
        return deed is not Deed.NOTHING

    def _undo(self, deed: Deed) -> None:
        if deed is Deed.STOP:
            start_prometheus(self.stage)
        elif deed is Deed.HANG:
            prometheus = self.stage.child("prometheus")
            if prometheus is not None:
                prometheus.send(signal.SIGCONT)
        elif deed in SHARES:
            self.share = 1.0
            self._write_targets()

    def _throttle(self) -> None:
        plan = next(plan for plan in self.stage.plans if plan.name == STARRED)
        number = random.Random(self.stage.wish.seed).randint(1, plan.instances)  # noqa: S311 - no secret
        self.slot = f"{plan.name}-{number:02d}"
        self._twin("POST", "/faults", {"kind": "throttle", "instance": self.slot, "factor": FACTOR})

    def _twin(self, method: str, path: str, body: Mapping[str, object] | None) -> None:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.stage.places.twin}{path}"
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5.0):  # noqa: S310 - loopback only
                pass
        except OSError as error:
            raise DemoError(f"the twin refused {method} {path}: {error}") from error

    def _write_targets(self) -> None:
        """From the twin's list as it is now; from its last one where it is too busy to answer."""
        self._refreshed = self.clock()
        with contextlib.suppress(DemoError):
            self._listed = targets(self.stage)
        write_targets(self.stage, self._listed, self.share)

    def _shows(self) -> bool:
        """Whether what the loop reads has become less: targets vanish first, recorded series with the
        next evaluation of the rules, and only then has anybody lost anything."""
        seen = self._seen()
        return seen is not None and seen < self._full

    def _seen(self) -> int | None:
        """How many engines have a recorded reading; None where Prometheus does not say."""
        query = urllib.parse.quote("count(trimtab:instance:running_requests) or vector(0)")
        try:
            answer = fetch(f"http://127.0.0.1:{self.stage.places.prometheus}/api/v1/query?query={query}", 1.0)
            return int(float(answer["data"]["result"][0]["value"][1]))
        except (OSError, ValueError, KeyError, IndexError):
            return None
