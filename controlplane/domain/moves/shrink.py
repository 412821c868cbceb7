"""Shrinking: who leaves, in an order that loses least, and never too many at a time."""

from __future__ import annotations

import math

from controlplane.domain.fleet import COMING, TAKES_TRAFFIC, Instance, Life, Phase
from controlplane.domain.ids import PoolName
from controlplane.domain.moves.floor import place_of
from controlplane.domain.moves.site import Code, Draft, Site
from controlplane.domain.state import Move

BUDGET = 0.25
"""Share of a pool that may be out at a time, for all voluntary causes together (design, section 6)."""


def shrink(site: Site, draft: Draft, pool: PoolName, count: int) -> tuple[Draft, int]:
    """The draft with at most `count` fewer instances of `pool`; and how many fewer.

    What has not come up yet goes first and costs nobody anything; the others within the budget.
    """
    draft, dropped = _not_yet_asked(draft, pool, count)
    coming = [each for each in _mine(site, draft, pool) if each.phase in COMING]
    for each in _ranked(site, coming)[: count - dropped]:
        draft, dropped = draft.with_move(_departure(site, each, wait_s=0.0)), dropped + 1
    serving = [each for each in _mine(site, draft, pool) if each.phase in TAKES_TRAFFIC]
    chosen = _ranked(site, serving)[: min(count - dropped, budget(site, draft, pool))]
    for each in chosen:
        wait_s = site.policy(pool).capacity.drain_s
        draft = draft.with_move(_departure(site, each, wait_s))
    return draft, dropped + len(chosen)


def budget(site: Site, draft: Draft, pool: PoolName) -> int:
    """How many more may leave now: `max(1, floor(0.25 N))` less those that are leaving already, or are out
    without having been asked to."""
    mine = _mine(site, draft, pool)
    out = sum(each.to is not Life.AWAKE for each in draft.of(pool))
    out += sum(each.phase is Phase.UNREACHABLE for each in mine)
    serving = sum(each.phase in TAKES_TRAFFIC for each in mine)
    return max(0, max(1, math.floor(BUDGET * (serving + out))) - out)


def _not_yet_asked(draft: Draft, pool: PoolName, count: int) -> tuple[Draft, int]:
    """Moves up that nobody was told of yet are simply dropped, the latest first."""
    waiting = [each for each in draft.of(pool) if each.to is Life.AWAKE and not each.asked]
    for each in waiting[::-1][:count]:
        draft = draft.without(each.instance)
    return draft, len(waiting[:count])


def _mine(site: Site, draft: Draft, pool: PoolName) -> list[Instance]:
    return [
        each for each in site.instances.values() if each.pool == pool and not draft.leaves(each.instance_id)
    ]


def _ranked(site: Site, members: list[Instance]) -> list[Instance]:
    """Borrowed before own, the idlest before the busy, the last by name before the first."""
    by_name = sorted(members, key=lambda each: each.instance_id, reverse=True)
    return sorted(by_name, key=lambda each: (not _borrowed(site, each), site.in_flight(each.instance_id)))


def _borrowed(site: Site, instance: Instance) -> bool:
    node = site.floor.nodes.get(instance.node)
    return node is not None and node.pool != instance.pool


def _departure(site: Site, instance: Instance, wait_s: float) -> Move:
    """To sleep where the GPUs are somebody else's, so that it is back within seconds; else it ends."""
    borrowed = _borrowed(site, instance)
    to, code = (Life.ASLEEP, Code.RETURNS) if borrowed else (Life.GONE, Code.STOPS)
    place = place_of(instance, site.floor)
    return Move(instance.instance_id, instance.pool, to, place, site.now, site.now + wait_s, code)
