"""An orchestrator that says what it is told to say."""

from __future__ import annotations

from controlplane.adapters.memory.faults import Faults
from controlplane.domain.fleet import Inventory


class MemoryOrchestrator:
    """The orchestrator port over one value. `faults` orders errors; `calls` counts questions."""

    def __init__(self, inventory: Inventory) -> None:
        self.now = inventory
        self.faults = Faults()
        self.calls = 0

    def inventory(self) -> Inventory:
        """What was last put into `now`. Raises Unavailable when ordered to."""
        self.calls += 1
        self.faults.check()
        return self.now
