"""A real twin behind a real HAProxy, scraped by a real Prometheus; the loop runs in the test itself."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.adapters.clock import SystemClock
from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.adapters.sql.open import open_record
from controlplane.demo import fleet
from controlplane.demo import stage as staging
from controlplane.demo.fleet import Places
from controlplane.demo.processes import Crew
from controlplane.domain.ids import CycleKind
from controlplane.domain.policy import Policies
from controlplane.loop.cycle import Loop, Report
from controlplane.wiring import Shared, open_loop

MIX = [
    {"model": "llama-3.1-8b", "seeded": {"shape": "chat", "seed": 1, "rate": 12.0}},
    {"model": "vision-12b", "seeded": {"shape": "chat", "seed": 2, "rate": 5.0}},
]
"""Two pools are busy, two stay idle: an idle healthy engine is a case of its own."""


WINDOW_S = 20.0
"""Evidence windows of the tests: a third of the demonstration's, so that they fill sooner."""


@dataclass(slots=True)
class World:
    """The real parts, and a loop over them that a test drives cycle by cycle."""

    stage: staging.Stage
    loop: Loop
    policies: Policies

    def cycle(self, kind: CycleKind) -> Report:
        """One cycle, now."""
        report = self.loop.cycle(kind, self.policies)
        assert report.failure == ""
        return report

    def twin(self, path: str) -> Any:
        """What the twin says at a path of its control port."""
        return staging.fetch(f"http://127.0.0.1:{self.stage.places.twin}{path}")

    @property
    def door(self) -> str:
        """The gateway's address."""
        return f"http://127.0.0.1:{self.stage.places.gateway}"


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """Everything but controller and traffic, started once and ended by its own pids."""
    with tempfile.TemporaryDirectory(prefix="trimtab-live-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "WINDOW_S", WINDOW_S)
        folder = Path(name)
        crew = Crew(folder, lambda: False)
        wish = staging.Wish("small", None, None, seed=1)
        prometheus_port, gateway, exporter = staging.free_ports(3)
        places = Places(folder, folder / "trimtab.db", prometheus_port, gateway, exporter, twin=0)
        prometheus, _ = staging.check(wish)
        stage = staging.Stage(wish, crew, places, prometheus)
        try:
            staging.start_parts(stage, lambda _text: None)
            (folder / "mix.json").write_text(json.dumps(MIX))
            staging.start_traffic(stage)
            settings = load_fleet(stage.places.fleet)
            record = open_record(f"sqlite:///{folder / 'trimtab.db'}", settings.cluster, "demo")
            with open_loop(settings, record, Shared(SystemClock(), threading.Event()), inline=False) as loop:
                policies = PolicyDirectory(stage.places.policies, stage.places.profiles).load()
                yield World(stage, loop, policies)
            record.lease.release()
            record.close()
        finally:
            crew.end_all()
        assert crew.left() == 0
