"""Orders as a gauge: the number of instances that a pool should have, for an HPA or KEDA that follows it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from controlplane.domain.fleet import Instance, Inventory
from controlplane.domain.ids import ActionId, InstanceId, PoolName
from controlplane.domain.observation import Reach
from controlplane.ports import Order, Refused


class GaugeOrchestrator:
    """The orchestrator port over `levels`, which the exporter shows as `trimtab_desired_replicas`.

    `instances` answers what exists, or raises Unavailable; `wall` in epoch seconds. It knows no nodes, so
    no GPUs are accounted for and nothing is lent. `levels` is empty after a start: until a level is
    ordered again there is no series, and whoever follows it leaves the pool as it is.
    """

    def __init__(
        self,
        instances: Callable[[], tuple[Instance, ...]],
        levels: MutableMapping[PoolName, int],
        wall: Callable[[], float],
    ) -> None:
        self._instances = instances
        self._levels = levels
        self._wall = wall

    @property
    def reach(self) -> Reach:
        """A pool's number can be asked for; who comes and who goes is somebody else's choice."""
        return Reach.REPLICAS

    def inventory(self) -> Inventory:
        """What exists, and the levels as they stand. Raises Unavailable."""
        return Inventory(self._wall(), (), self._instances(), tuple(sorted(self._levels.items())))

    def ensure(self, order: Order) -> None:
        """Refused: which instance comes or goes is not ours to say."""
        raise Refused(f"{order.action}: only the number of {order.pool} can be asked for")

    def adopt(self, action: ActionId, instance: InstanceId) -> None:
        """Refused: who follows the gauge manages what it makes."""
        raise Refused(f"{action}: {instance} is managed by whoever follows the gauge")

    def set_instances(self, action: ActionId, pool: PoolName, count: int) -> None:  # noqa: ARG002
        """Show another number from the next scrape on."""
        self._levels[pool] = count
