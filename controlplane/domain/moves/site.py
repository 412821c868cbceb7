"""What a move is decided on: everything known at one instant, and the moves as drafted so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from controlplane.domain.fleet import OFF, Instance, Inventory, Life, Place
from controlplane.domain.gateway import GatewayView, ServerState, ServerView
from controlplane.domain.ids import CycleKind, InstanceId, PoolName
from controlplane.domain.moves.floor import Floor, Gpu, floor_of, gpus_of
from controlplane.domain.observation import Observation
from controlplane.domain.policy import Mode, Policies, PoolPolicy
from controlplane.domain.readings import Missing, Signal
from controlplane.domain.state import Move
from controlplane.domain.view import PoolView


class Code(StrEnum):
    """Why an instance moves."""

    WAKES = "move_wakes"
    STARTS = "move_starts"
    EVICTED = "move_evicted"
    RETURNS = "move_returns"
    STOPS = "move_stops"
    GIVEN_UP = "move_given_up"
    CUT = "move_cut"


WORDS: Mapping[str, str] = {
    Code.WAKES: "its pool needs more, and it wakes within seconds",
    Code.STARTS: "its pool needs more",
    Code.EVICTED: "a pool of higher priority needs its GPUs",
    Code.RETURNS: "its pool needs less, and its GPUs are borrowed",
    Code.STOPS: "its pool needs less",
    Code.GIVEN_UP: "it did not come up in time",
    Code.CUT: "its longest drain is over, and what is still open there is cut",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One instant. `views` of the pools whose own decision did not fail."""

    observation: Observation
    policies: Policies
    views: Mapping[PoolName, PoolView]
    floor: Floor
    instances: Mapping[InstanceId, Instance]
    shunned: Mapping[str, float]

    @property
    def now(self) -> float:
        """The cycle's instant, epoch seconds."""
        return self.observation.now

    @property
    def kind(self) -> CycleKind:
        """Which clock ticked."""
        return self.observation.kind

    def owner(self, place: Place) -> PoolName | None:
        """Whose node a place is on; None: the buffer's."""
        return self.floor.nodes[place.node].pool

    def moves_freely(self, pool: PoolName) -> bool:
        """Whether this pool's instances may be ordered about now: by its policy, and unheld."""
        policy, view = self.policies.pools.get(pool), self.views.get(pool)
        if policy is None or view is None or view.holds:
            return False
        both = self.kind is CycleKind.CAPACITY or policy.weights_mode is Mode.AUTO
        return both and policy.capacity_mode is Mode.AUTO

    def policy(self, pool: PoolName) -> PoolPolicy:
        """A pool's policy. Raises KeyError where it has none."""
        return self.policies.pools[pool]

    def servers(self, instance: InstanceId) -> Iterator[tuple[str, ServerView]]:
        """An instance at every gateway that answered, with the gateway's name."""
        for name, gateway in sorted(self.observation.gateways.items()):
            if isinstance(gateway, GatewayView):
                rows = (row for backend in gateway.backends for row in backend.servers)
                yield from ((name, row) for row in rows if row.instance_id == instance)

    def in_flight(self, instance: InstanceId) -> int:
        """Its open requests, by the gateways' own counts."""
        return sum(row.in_flight for _, row in self.servers(instance))

    def quiet(self, instance: InstanceId) -> bool:
        """Whether it is known that no gateway has a request of it, or would send it one."""
        if any(isinstance(each, Missing) for each in self.observation.gateways.values()):
            return False
        rows = [row for _, row in self.servers(instance)]
        return bool(rows) and all(not row.in_flight and row.state is not ServerState.OPEN for row in rows)

    def at_work(self, pool: PoolName, instance: InstanceId) -> bool:
        """Whether its engine says that it runs requests: those of a reloaded gateway's old worker stand in no
        gateway's count that can be asked."""
        view = self.views[pool]
        running, rows = view.column(Signal.RUNNING), enumerate(view.instances)
        row = next((row for row, each in rows if each.instance_id == instance), None)
        return row is not None and bool(running.ok[row]) and float(running.value[row]) > 0.0

    def served_since(self, pool: PoolName, instance: InstanceId) -> bool:
        """Whether the gateways have ended requests of it since they were last counted: a look that finds
        nothing open tells nothing of what came and went between two looks."""
        counted = self.views[pool].state.served.get(instance)
        ended = sum(row.completed_total for _, row in self.servers(instance))
        return counted is not None and counted.completed_total != ended


@dataclass(frozen=True, slots=True)
class Draft:
    """Moves by instance, as they will be remembered. `evicted_for`: who takes whose GPUs."""

    moves: Mapping[InstanceId, Move] = field(default_factory=dict)
    evicted_for: Mapping[InstanceId, PoolName] = field(default_factory=dict)

    def with_move(self, move: Move) -> Draft:
        """The same with one move added, or replaced."""
        return replace(self, moves={**self.moves, move.instance: move})

    def without(self, instance: InstanceId) -> Draft:
        """The same without one move."""
        return replace(self, moves={name: each for name, each in self.moves.items() if name != instance})

    def of(self, pool: PoolName) -> Iterator[Move]:
        """A pool's moves, in id order."""
        return (self.moves[name] for name in sorted(self.moves) if self.moves[name].pool == pool)

    def claimed(self) -> frozenset[Gpu]:
        """GPUs on which somebody is ordered to come up."""
        rising = (each for each in self.moves.values() if each.to is Life.AWAKE)
        return frozenset(gpu for each in rising for gpu in gpus_of(each.place))

    def leaves(self, instance: str) -> bool:
        """Whether an instance is on its way down."""
        move = self.moves.get(InstanceId(instance))
        return move is not None and move.to is not Life.AWAKE


def site_of(
    observation: Observation,
    inventory: Inventory,
    policies: Policies,
    views: Mapping[PoolName, PoolView],
    shunned: Mapping[str, float],
) -> Site:
    """The site of one cycle. `shunned`: places with the instant until which they are left alone."""
    return Site(
        observation,
        policies,
        views,
        floor_of(inventory),
        {each.instance_id: each for each in inventory.instances},
        {key: until for key, until in shunned.items() if until > observation.now},
    )


def place_key(pool: PoolName, place: Place) -> str:
    """A place's name among those that are shunned: what fails there for one pool need not for another."""
    return f"{pool}@{place.node}:{','.join(map(str, place.gpus))}"


def is_up(instance: Instance | None) -> bool:
    """Whether it holds its GPUs."""
    return instance is not None and instance.phase not in OFF
