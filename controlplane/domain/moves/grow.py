"""Growth: who stays after all, who wakes, who is started, and where.

Fastest first: an instance that was about to leave stays; a sleeper wakes, on free GPUs or on those of
offline work in the buffer, which ends without notice; a new one is started on the pool's own nodes,
then in the buffer. The buffer's reserve is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controlplane.domain.fleet import Instance, Life, Node, Phase, Place
from controlplane.domain.ids import InstanceId, PoolName, base36
from controlplane.domain.moves.floor import BROKEN, Gpu, blocks, gpus_of, place_of
from controlplane.domain.moves.site import Code, Draft, Site, place_key
from controlplane.domain.policy import PoolKind
from controlplane.domain.profile import LEAST_PATIENCE_S, start_patience_s
from controlplane.domain.state import Move

WAKE_PATIENCE = 10.0
"""Multiple of the profile's own time after which a wake is given up."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What became of a wish to grow, in instances. `short`: for how many no place was found."""

    stay: int = 0
    wake: int = 0
    start: int = 0
    short: int = 0

    @property
    def found(self) -> int:
        """How many it comes to."""
        return self.stay + self.wake + self.start


@dataclass(frozen=True, slots=True)
class _Seat:
    """A place, and who would come up there: an existing sleeper, or (None) a new instance."""

    place: Place
    sleeper: InstanceId | None


def grow(site: Site, draft: Draft, pool: PoolName, count: int) -> tuple[Draft, Grown]:
    """The draft with `count` more instances of `pool` on their way, or as many as there is room for."""
    draft, stay = _turned_round(site, draft, pool, count)
    draft, wake = _filled(site, draft, pool, _sleepers(site, draft, pool), count - stay)
    draft, start = _filled(site, draft, pool, _cold(site, pool), count - stay - wake)
    return draft, Grown(stay, wake, start, count - stay - wake - start)


def has_shape(site: Site, pool: PoolName) -> bool:
    """Whether any node on which it may start, were it empty, has room for one instance of `pool`."""
    size = site.policy(pool).tp
    return any(True for node in _open_to(site, pool) for _ in blocks(node, size))


def _turned_round(site: Site, draft: Draft, pool: PoolName, count: int) -> tuple[Draft, int]:
    """Who was about to leave, and was not told to yet, stays; not whoever makes room for another pool, or
    has its GPUs promised to one of no lower priority by now."""
    claimed = _promised(site, draft, pool)
    leaving = [
        each
        for each in draft.of(pool)
        if each.to is not Life.AWAKE
        and not each.asked
        and each.code in {Code.RETURNS, Code.STOPS}
        and claimed.isdisjoint(gpus_of(each.place))
    ]
    for each in leaving[:count]:
        draft = draft.without(each.instance)
    return draft, len(leaving[:count])


def _promised(site: Site, draft: Draft, pool: PoolName) -> frozenset[Gpu]:
    """GPUs on which another pool, of no lower priority, is ordered to come up."""
    priority = site.policy(pool).priority
    peers = {
        each.pool for each in site.policies.pools.values() if each.pool != pool and each.priority >= priority
    }
    rising = (each for each in draft.moves.values() if each.to is Life.AWAKE and each.pool in peers)
    return frozenset(gpu for each in rising for gpu in gpus_of(each.place))


def _filled(
    site: Site, draft: Draft, pool: PoolName, seats: Iterator[_Seat], count: int
) -> tuple[Draft, int]:
    taken = 0
    for seat in seats:
        if taken == count:
            break
        if _may_take(site, draft, pool, seat.place):
            draft, taken = _taken(site, draft, pool, seat), taken + 1
    return draft, taken


def _sleepers(site: Site, draft: Draft, pool: PoolName) -> Iterator[_Seat]:
    """The pool's sleepers whose place is known, those on free GPUs first."""
    asleep = [
        each
        for each in site.instances.values()
        if each.pool == pool and each.phase is Phase.ASLEEP and each.instance_id not in draft.moves
    ]
    known = [each for each in asleep if each.gpus and each.node in site.floor.nodes]
    seats = [_Seat(place_of(each, site.floor), each.instance_id) for each in known]
    return iter(sorted(seats, key=lambda seat: (len(site.floor.blockers(seat.place)), seat.sleeper)))


def _cold(site: Site, pool: PoolName) -> Iterator[_Seat]:
    """Free places: own nodes before the buffer's, those with the model before others, full ones first."""
    policy = site.policy(pool)

    def rank(node: Node) -> tuple[bool, bool, int, str]:
        return node.pool is None, policy.model not in node.models, site.floor.free(node.node_id), node.node_id

    for node in sorted(_open_to(site, pool), key=rank):
        places = sorted(blocks(node, policy.tp), key=lambda place: len(site.floor.blockers(place)))
        yield from (_Seat(place, None) for place in places)


def _open_to(site: Site, pool: PoolName) -> Iterator[Node]:
    """Nodes on which new ones of a pool may start."""
    return (each for each in site.floor.nodes.values() if each.pool in {pool, None})


def _may_take(site: Site, draft: Draft, pool: PoolName, place: Place) -> bool:
    if place_key(pool, place) in site.shunned or any(gpu in draft.claimed() for gpu in gpus_of(place)):
        return False
    blockers = site.floor.blockers(place)
    if not all(draft.leaves(each) or _evictable(site, pool, each) for each in blockers):
        return False
    return site.owner(place) is not None or _leaves_reserve(site, draft, pool, place)


def _evictable(site: Site, pool: PoolName, holder: str) -> bool:
    """Offline work of a lower priority on the buffer's GPUs, that may be ordered about."""
    guest = site.instances.get(InstanceId(holder)) if holder != BROKEN else None
    if guest is None or site.floor.nodes[guest.node].pool is not None or guest.pool == pool:
        return False
    policy = site.policies.pools.get(guest.pool)
    if policy is None or policy.kind is not PoolKind.OFFLINE:
        return False
    return policy.priority < site.policy(pool).priority and site.moves_freely(guest.pool)


def _leaves_reserve(site: Site, draft: Draft, pool: PoolName, place: Place) -> bool:
    """Whether the buffer keeps its reserve, or the pool is in a breach that may break it."""
    held, claimed = site.floor.holders, draft.claimed()
    spare = {
        (node.node_id, index)
        for node in site.floor.nodes.values()
        if node.pool is None
        for index in range(node.gpu_count)
        if (node.node_id, index) not in held and (node.node_id, index) not in claimed
    }
    taken = spare & set(gpus_of(place))
    return not taken or len(spare) - len(taken) >= site.policies.buffer.reserve or _in_breach(site, pool)


def _in_breach(site: Site, pool: PoolName) -> bool:
    policy, view = site.policy(pool), site.views[pool]
    breached = view.state.breaches >= policy.evidence.breach_cycles
    return breached and policy.priority >= site.policies.buffer.reserve_priority


def _taken(site: Site, draft: Draft, pool: PoolName, seat: _Seat) -> Draft:
    """The seat's instance is ordered up, and whoever sits there makes room at once."""
    for holder in sorted(site.floor.blockers(seat.place)):
        if not draft.leaves(holder):
            guest = site.instances[InstanceId(holder)]
            draft = replace(draft, evicted_for={**draft.evicted_for, guest.instance_id: pool})
            draft = draft.with_move(_eviction(site, guest))
    return draft.with_move(_rise(site, draft, pool, seat))


def _eviction(site: Site, guest: Instance) -> Move:
    place = place_of(guest, site.floor)
    return Move(guest.instance_id, guest.pool, Life.ASLEEP, place, site.now, site.now, Code.EVICTED)


def _rise(site: Site, draft: Draft, pool: PoolName, seat: _Seat) -> Move:
    profile, free = site.views[pool].profile, _free_at(site, draft, seat.place)
    if seat.sleeper is not None:
        until = free + max(LEAST_PATIENCE_S, WAKE_PATIENCE * profile.wake_s)
        return Move(seat.sleeper, pool, Life.AWAKE, seat.place, site.now, until, Code.WAKES)
    until = free + start_patience_s(profile)
    return Move(_new_id(site, draft, pool), pool, Life.AWAKE, seat.place, site.now, until, Code.STARTS)


def _free_at(site: Site, draft: Draft, place: Place) -> float:
    """When a place should be free at the latest: an instance that leaves it may wait for open requests, and
    whoever waits for that is not late yet."""
    leaving = (draft.moves[InstanceId(each)] for each in site.floor.blockers(place) if draft.leaves(each))
    return max((site.now, *(each.until for each in leaving)))


def _new_id(site: Site, draft: Draft, pool: PoolName) -> InstanceId:
    """The pool's first free slot, with this instant for its start: the same however often it is asked."""
    standing = [each.instance_id for each in site.instances.values() if each.phase is not Phase.GONE]
    used = {_slot(name) for name in (*standing, *draft.moves)}
    number = next(n for n in range(1, len(used) + 2) if f"{pool}-{n:02d}" not in used)
    cluster = site.observation.cluster
    return InstanceId(f"{cluster}/{pool}-{number:02d}@{base36(int(site.now))}")


def _slot(name: str) -> str:
    return name.rpartition("/")[2].partition("@")[0]
