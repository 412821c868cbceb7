"""All instances of a twin and the levels wanted of them: what an order changes, and what is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.twin.live import ledger
from controlplane.twin.live.lifecycle import Level, Phase, Record, at_once
from controlplane.twin.live.orders import Order, Place, base36

KEPT_LIVES = 1000


class Refused(Exception):
    """An order that can't be carried out as things are; nothing was changed."""


class Unknown(Exception):
    """No such instance."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What there is. `nodes`: GPUs of each; `tp`, `weights_gib`: by pool; `host_memory_gib`: of a node."""

    nodes: Mapping[str, int]
    tp: Mapping[str, int]
    weights_gib: Mapping[str, float]
    host_memory_gib: float


@dataclass(slots=True)
class Roster:
    """The instances by slot. `clock`: epoch seconds; `buried` is told of each that is gone."""

    cluster: str
    bounds: Bounds
    clock: Callable[[], float]
    buried: Callable[[Record], None] = lambda _record: None
    records: dict[str, Record] = field(default_factory=dict)
    lives: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_LIVES))
    _ended: set[str] = field(default_factory=set)

    def add(self, record: Record) -> None:
        """One that stands there at the start, or was accepted."""
        self.records[record.slot] = record
        self._note(record)

    def enter(self, record: Record, phase: Phase) -> None:
        """It is in another phase from now on."""
        if phase is Phase.SERVING and record.phase is Phase.WARMING:
            record.ready_at = self.clock()
        record.phase, record.leaving = phase, phase is Phase.DRAINING
        self._note(record)
        if phase is Phase.GONE:
            self._ended.add(record.instance_id)
            del self.records[record.slot]
            self.buried(record)

    def order(self, order: Order) -> bool:
        """Take an order; whether it changed anything. Raises Refused, with everything as it was."""
        record = self._named(order)
        if record is None:
            return order.level is not Level.GONE and self._create(order)
        self._check(record, order)
        changed = self._lend(record, order)
        if record.wanted is order.level:
            return changed
        record.wanted = order.level
        if (phase := at_once(record)) is not None:
            self.enter(record, phase)
        return True

    def drain(self, record: Record, *, on: bool) -> None:
        """Say that it is leaving (or that it stays after all); nothing unless it serves."""
        if record.phase is Phase.SERVING and on:
            self.enter(record, Phase.DRAINING)
            record.leaving = False
        elif record.phase is Phase.DRAINING and not record.leaving and not on:
            self.enter(record, Phase.SERVING)

    def adopt(self, instance_id: str) -> bool:
        """From now on orders for it are taken; whether that is new. Raises Unknown."""
        record = self.find(instance_id)
        if record is None:
            raise Unknown(f"unknown instance {instance_id!r}; known: {self._known()}")
        changed, record.managed = not record.managed, True
        return changed

    def find(self, instance_id: str) -> Record | None:
        """The record with exactly this id."""
        return next((each for each in self.records.values() if each.instance_id == instance_id), None)

    def crash(self, record: Record) -> None:
        """Its process died: another start of the slot loads, or nothing where it can't.

        One that slept needs its GPUs to load; where another is awake on them, it is gone.
        """
        blocked = not record.holds and ledger.held(self.records.values(), record) is not None
        if record.wanted is Level.GONE or blocked:
            self.enter(record, Phase.GONE)
            return
        self._ended.add(record.instance_id)
        self.lives.append({"instance_id": record.instance_id, "phase": Phase.GONE, "at": self.clock()})
        record.started_at = self._fresh_start(record)
        record.instance_id = instance_id(self.cluster, record.slot, record.started_at)
        record.ready_at = None
        self.enter(record, Phase.LOADING)

    def _fresh_start(self, record: Record) -> float:
        """Now, or the first whole second after it that no start of the slot had: an id has whole seconds,
        and two starts within one would be taken for the same instance."""
        start = max(self.clock(), record.started_at + 1.0)
        while instance_id(self.cluster, record.slot, start) in self._ended:
            start += 1.0
        return start

    def _note(self, record: Record) -> None:
        self.lives.append({"instance_id": record.instance_id, "phase": record.phase, "at": self.clock()})

    def _known(self) -> str:
        return ", ".join(sorted(each.instance_id for each in self.records.values()))

    def _named(self, order: Order) -> Record | None:
        """The instance of an order; None where it isn't there."""
        present = self.records.get(order.slot)
        if present is not None and present.instance_id == order.instance_id:
            return present
        if order.level is Level.GONE:
            return None
        if order.instance_id in self._ended:
            raise Refused(f"{order.instance_id} is gone, and does not come back: order one with a new start")
        if present is not None:
            raise Refused(f"the slot {order.slot} is that of {present.instance_id} ({present.phase})")
        return None

    def _create(self, order: Order) -> bool:
        if order.place is None:
            raise Refused(f"{order.instance_id} is unknown, so its spec is needed: pool, node, gpus, lent_by")
        self._possible(order.place)
        record = _requested(order, order.place)
        self._free(record)
        if order.level is Level.ASLEEP:
            self._room(record)
        self.add(record)
        return True

    def _possible(self, place: Place) -> None:
        _known_one(place.pool, "pool", self.bounds.tp)
        _known_one(place.node, "node", self.bounds.nodes)
        count, tp = self.bounds.nodes[place.node], self.bounds.tp[place.pool]
        if beyond := [gpu for gpu in place.gpus if gpu >= count]:
            raise Refused(f"spec.gpus: {place.node} has no GPU {beyond[0]}; allowed 0..{count - 1}")
        if len(place.gpus) != tp:
            raise Refused(f"spec.gpus: {len(place.gpus)} given; an instance of {place.pool} has {tp}")

    def _check(self, record: Record, order: Order) -> None:
        if not record.managed:
            raise Refused(f"{record.instance_id} is not managed here: adopt it first")
        if order.place is not None and order.level is not Level.GONE:
            _agree(record, order.place)
        if record.wanted is order.level:
            return
        if record.wanted is Level.GONE:
            raise Refused(f"{record.instance_id} is going away, and does not come back")
        if order.level is Level.AWAKE and not record.holds:
            self._free(record)
        if order.level is Level.ASLEEP:
            self._room(record)

    def _free(self, record: Record) -> None:
        if (problem := ledger.held(self.records.values(), record)) is not None:
            raise Refused(problem)

    def _room(self, record: Record) -> None:
        problem = ledger.no_room(
            self.records.values(), record, self.bounds.weights_gib, self.bounds.host_memory_gib
        )
        if problem is not None:
            raise Refused(problem)

    @staticmethod
    def _lend(record: Record, order: Order) -> bool:
        if order.place is None or order.level is Level.GONE or order.place.lent_by == record.lent_by:
            return False
        record.lent_by = order.place.lent_by
        return True


def instance_id(cluster: str, slot: str, started_at: float) -> str:
    """`<cluster>/<slot>@<start in base 36>`: a new start is a new instance."""
    return f"{cluster}/{slot}@{base36(int(started_at))}"


def _requested(order: Order, place: Place) -> Record:
    return Record(
        instance_id=order.instance_id,
        pool=place.pool,
        node=place.node,
        gpus=place.gpus,
        lent_by=place.lent_by,
        managed=True,
        started_at=float(order.start),
        phase=Phase.REQUESTED,
        wanted=order.level,
    )


def _known_one(value: str, field: str, known: Collection[str]) -> None:
    if value not in known:
        raise Refused(f"spec.{field}: unknown {value!r}; known: {', '.join(sorted(known))}")


def _agree(record: Record, place: Place) -> None:
    for name in ("pool", "node", "gpus"):
        said, is_so = getattr(place, name), getattr(record, name)
        if said != is_so:
            raise Refused(f"spec.{name} is {_plain(said)}; {record.instance_id} has {_plain(is_so)}")


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
