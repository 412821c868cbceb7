"""An orchestrator that says what it is told to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controlplane.adapters.memory.faults import Faults
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import ActionId, InstanceId, PoolName
from controlplane.domain.observation import Reach
from controlplane.ports import Order


class MemoryOrchestrator:
    """The orchestrator port over one value. `faults` orders errors to questions, `order_faults` to orders;
    `calls` counts questions. `orders` holds what was asked for; `then` brings about what it wants."""

    def __init__(self, inventory: Inventory, reach: Reach = Reach.NOTHING) -> None:
        self.now = inventory
        self.reach = reach
        self.faults = Faults()
        self.order_faults = Faults()
        self.calls = 0
        self.orders: list[tuple[str, str, str]] = []
        self.then: Callable[[Order], None] = lambda _order: None

    def inventory(self) -> Inventory:
        """What was last put into `now`. Raises Unavailable when ordered to."""
        self.calls += 1
        self.faults.check()
        return self.now

    def ensure(self, order: Order) -> None:
        """Note the order, and do what `then` does of it."""
        self.order_faults.check()
        self.orders.append(("ensure", order.instance, order.life.value))
        self.then(order)

    def adopt(self, action: ActionId, instance: InstanceId) -> None:  # noqa: ARG002 - the port's form
        """Mark it as ours."""
        self.order_faults.check()
        self.orders.append(("adopt", instance, ""))
        ours = [
            replace(each, managed=each.managed or each.instance_id == instance) for each in self.now.instances
        ]
        self.now = replace(self.now, instances=tuple(ours))

    def set_instances(self, action: ActionId, pool: PoolName, count: int) -> None:  # noqa: ARG002
        """Note the number."""
        self.order_faults.check()
        self.orders.append(("set_instances", pool, str(count)))
