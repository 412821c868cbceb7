"""Progress: what each move needs next, by what the world shows. The same for both clocks.

Up: the GPUs must be seen free before anybody is told to take them. Down: the gateways must be seen to
send nothing more and to have nothing open, or the wait must be over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controlplane.domain.fleet import COMING, OFF, TAKES_TRAFFIC, Instance, Life, Phase
from controlplane.domain.gateway import ServerState
from controlplane.domain.ids import CycleKind
from controlplane.domain.moves.site import Code, Site, is_up, place_key
from controlplane.domain.plan import Action, ActionKind
from controlplane.domain.state import Move

AGAIN_S = 6.0
"""How long an order that was accepted may show nothing before it is sent again: it is a level."""

QUIET_S = 1.0
"""How long an instance must have been seen idle and closed before it counts as drained: the start of a
drain is not its effect, and a request may be on its way from gateway to engine."""

SLEEP_TRIES = 3
"""Orders to fall asleep after which it is ended instead: its GPUs are needed."""

SHUN_S = 600.0
"""How long a place is left alone where an instance did not come up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A move as it is remembered (None: it is done, or given up), and what is to be sent for it.
    `shuns`: the place where it came to nothing."""

    move: Move | None
    actions: tuple[Action, ...] = ()
    shuns: str = ""


def progress(site: Site, move: Move) -> Progress:
    """One move, one cycle further. Whoever gave its instance to another pool has ended it."""
    instance = site.instances.get(move.instance)
    if instance is not None and instance.pool != move.pool:
        return Progress(None)
    move = _on_the_clock(move, site.now)
    if move.to is Life.AWAKE:
        return _up(site, move, instance)
    return _down(site, move, instance)


def _on_the_clock(move: Move, now: float) -> Move:
    """The same move where a clock that was set back would have it in the future: all of its instants go
    back with the clock, so that it waits no longer than it would have."""
    back = max(move.since, move.asked_at or move.since, move.idle_since or move.since) - now
    if back <= 0.0:
        return move
    asked_at, idle_since = (None if at is None else at - back for at in (move.asked_at, move.idle_since))
    return replace(
        move, since=move.since - back, until=move.until - back, asked_at=asked_at, idle_since=idle_since
    )


def _past_the_gap(site: Site, move: Move) -> Move:
    """The same move, waiting as much longer as nobody looked: neither a clock that was set forward nor a
    controller that was away has waited for a request."""
    view = site.views[move.pool]
    seen_at = view.state.seen_at
    gap = 0.0 if seen_at is None else site.now - max(seen_at, move.since)
    if gap <= view.policy.evidence.max_age_s or site.now - gap >= move.until:
        return move
    return replace(move, until=move.until + gap)


def _up(site: Site, move: Move, instance: Instance | None) -> Progress:
    phase = None if instance is None else instance.phase
    if phase in TAKES_TRAFFIC or phase is Phase.HOT:
        return Progress(None)
    if phase is Phase.GONE:
        return Progress(None, shuns=place_key(move.pool, move.place))
    if site.now >= move.until:
        return _given_up(site, move, instance)
    waits = phase in COMING or bool(site.floor.blockers(move.place) - {move.instance})
    return Progress(move) if waits else _ask(site, move, instance)


def _given_up(site: Site, move: Move, instance: Instance | None) -> Progress:
    """What came half way is ended, so that its GPUs are free; what never began needs nothing."""
    shunned = place_key(move.pool, move.place)
    if not is_up(instance):
        return Progress(None, shuns=shunned)
    ending = replace(
        move, to=Life.GONE, since=site.now, until=site.now, code=Code.GIVEN_UP, asked=0, asked_at=None
    )
    return Progress(ending, shuns=shunned)


def _down(site: Site, move: Move, instance: Instance | None) -> Progress:
    if instance is None or instance.phase is Phase.GONE:
        return Progress(None)
    if move.to is Life.ASLEEP and instance.phase in OFF:
        return Progress(None)
    if site.views[move.pool].blind and move.code != Code.EVICTED:
        return Progress(move)
    move = _past_the_gap(site, move)
    move = replace(move, idle_since=_idle_since(site, move))
    closing = tuple(_closing(site, move)) if site.kind is CycleKind.CAPACITY else ()
    if not _drained(site, move, instance):
        return Progress(move, closing)
    asked = _ask(site, _harder(site, move), instance)
    return replace(asked, actions=(*closing, *asked.actions))


def _drained(site: Site, move: Move, instance: Instance) -> bool:
    """Whether it may be ended. Who takes no traffic has not to be watched for a while, but a health check
    that fails ends no stream either."""
    if site.now >= move.until:
        return True
    if instance.phase not in TAKES_TRAFFIC | {Phase.DRAINING}:
        return not site.in_flight(move.instance)
    return move.idle_since is not None and site.now - move.idle_since >= QUIET_S


def _idle_since(site: Site, move: Move) -> float | None:
    if not site.quiet(move.instance) or site.at_work(move.pool, move.instance):
        return None
    begins = move.idle_since is None or site.served_since(move.pool, move.instance)
    return site.now if begins else move.idle_since


def _harder(site: Site, move: Move) -> Move:
    tired = move.to is Life.ASLEEP and move.asked >= SLEEP_TRIES and _due(site, move)
    return replace(move, to=Life.GONE) if tired else move


def _closing(site: Site, move: Move) -> Iterator[Action]:
    for name, row in site.servers(move.instance):
        if row.state is ServerState.OPEN:
            yield Action(ActionKind.CLOSE, move.pool, name, move.instance, 0, 1, move.code)


def _ask(site: Site, move: Move, instance: Instance | None) -> Progress:
    if not _due(site, move):
        return Progress(move)
    asked = replace(move, asked=move.asked + 1, asked_at=site.now)
    order = Action(
        kind=ActionKind.ENSURE,
        pool=move.pool,
        gateway="",
        instance=move.instance,
        level=move.to.level,
        seen=life(instance).level,
        code=_reason(site, move),
        place=move.place,
    )
    return Progress(asked, (*_adoption(move, instance), order))


def _reason(site: Site, move: Move) -> str:
    """An order that ends open requests, although they were waited for, says so."""
    if move.to is Life.AWAKE or move.code not in {Code.RETURNS, Code.STOPS}:
        return move.code
    busy = site.in_flight(move.instance) or site.at_work(move.pool, move.instance)
    return Code.CUT if busy else move.code


def _due(site: Site, move: Move) -> bool:
    return move.asked_at is None or site.now - move.asked_at >= AGAIN_S


def _adoption(move: Move, instance: Instance | None) -> Iterator[Action]:
    """Nothing is ordered about that is not ours: what others made is adopted first, on the record."""
    if instance is not None and not instance.managed:
        yield Action(ActionKind.ADOPT, move.pool, "", move.instance, 1, 0, move.code)


def life(instance: Instance | None) -> Life:
    """How far up an instance is seen to be; on its way up counts as awake: it holds its GPUs."""
    if instance is None or instance.phase is Phase.GONE:
        return Life.GONE
    return Life.ASLEEP if instance.phase is Phase.ASLEEP else Life.AWAKE
