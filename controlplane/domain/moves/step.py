"""The fleet's part of a cycle: wanted numbers become moves, and every move goes one cycle further.

Pools are asked in the order of their priority, each for itself: what breaks in one changes nothing
that another one drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.domain.explanation import Input, Step, Vote
from controlplane.domain.ids import PoolName
from controlplane.domain.loans import BUFFER
from controlplane.domain.moves.grow import Grown, grow, has_shape
from controlplane.domain.moves.progress import SHUN_S, Progress, progress
from controlplane.domain.moves.shrink import budget, shrink
from controlplane.domain.moves.site import Draft, Site
from controlplane.domain.plan import Action
from controlplane.domain.rules.base import figure
from controlplane.domain.state import Move

ID = "placement"
MOVES = "moves"
"""The rule that stands for a move under way, where nothing else was decided."""


class Code(StrEnum):
    """What became of a pool's wish."""

    FOUND = "placement_found"
    SHORT = "placement_short"
    NO_SHAPE = "placement_no_shape"
    LEAVES = "placement_leaves"
    BUDGET = "placement_budget"
    EVICTED = "placement_evicted"


WORDS: Mapping[str, str] = {
    Code.FOUND: "{wake} wake, {start.plain} start and {stay.plain} stay",
    Code.SHORT: "there is room for {found.plain} of {wanted}, and {missing} are missing",
    Code.NO_SHAPE: "no node of its own or of the buffer has {block} for one instance",
    Code.LEAVES: "{leaves} leave",
    Code.BUDGET: "{leaves} leave, and at most {budget.plain} more may be on their way out now",
    Code.EVICTED: "{evicted.subject} has a higher priority and needs the GPUs of {evicted}",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """A pool's number: what it has (coming ones included), and what was decided."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What the step comes to. `achieved`: by how much a pool's number changes; `failures`: of pools whose
    part broke, and which nothing was drafted for."""

    moves: tuple[Move, ...]
    shunned: Mapping[str, float]
    actions: Mapping[PoolName, tuple[Action, ...]] = field(default_factory=dict)
    steps: Mapping[PoolName, tuple[Step, ...]] = field(default_factory=dict)
    achieved: Mapping[PoolName, int] = field(default_factory=dict)
    failures: Mapping[PoolName, Exception] = field(default_factory=dict)


def move_fleet(site: Site, moves: Iterable[Move], wishes: Mapping[PoolName, Wish]) -> Moved:
    """One cycle of all moves. `wishes`: of the pools that may move, in a capacity cycle."""
    drafted = _drafted(site, Draft({each.instance: each for each in moves}), wishes)
    ways = [_further(site, each, drafted.failures) for _, each in sorted(drafted.draft.moves.items())]
    actions: dict[PoolName, tuple[Action, ...]] = {}
    for each, after in ways:
        actions[each.pool] = (*actions.get(each.pool, ()), *after.actions)
    return Moved(
        moves=tuple(after.move for _, after in ways if after.move is not None),
        shunned={**site.shunned, **{after.shuns: site.now + SHUN_S for _, after in ways if after.shuns}},
        actions={pool: each for pool, each in actions.items() if each},
        steps=_with_evictions(drafted),
        achieved=drafted.achieved,
        failures=drafted.failures,
    )


def _further(site: Site, move: Move, failures: dict[PoolName, Exception]) -> tuple[Move, Progress]:
    """One move, one cycle further; where its pool is held, or a rule breaks, it stays as it is."""
    try:
        return move, progress(site, move) if site.moves_freely(move.pool) else Progress(move)
    except Exception as error:  # noqa: BLE001 - as above
        failures[move.pool] = error
        return move, Progress(move)


@dataclass(frozen=True, slots=True)
class _Drafted:
    draft: Draft
    steps: dict[PoolName, tuple[Step, ...]]
    achieved: dict[PoolName, int]
    failures: dict[PoolName, Exception]


def _drafted(site: Site, draft: Draft, wishes: Mapping[PoolName, Wish]) -> _Drafted:
    drafted = _Drafted(draft, {}, {}, {})
    for pool in sorted(wishes, key=lambda pool: (-site.policy(pool).priority, pool)):
        try:
            draft, step, change = _one(site, drafted.draft, pool, wishes[pool])
        except Exception as error:  # noqa: BLE001 - one pool's fault must never reach another pool
            drafted.failures[pool] = error
            continue
        drafted.steps[pool], drafted.achieved[pool] = (step,), change
        drafted = _Drafted(draft, drafted.steps, drafted.achieved, drafted.failures)
    return drafted


def _one(site: Site, draft: Draft, pool: PoolName, wish: Wish) -> tuple[Draft, Step, int]:
    if wish.after > wish.before:
        draft, grown = grow(site, draft, pool, wish.after - wish.before)
        return draft, _growth(site, pool, wish, grown), grown.found
    most = budget(site, draft, pool)
    draft, leaves = shrink(site, draft, pool, wish.before - wish.after)
    code = Code.LEAVES if leaves == wish.before - wish.after else Code.BUDGET
    inputs = (figure("leaves", leaves, "instances"), figure("budget", most, "instances"))
    return draft, Step(ID, code, Vote.ABSTAIN, inputs), -leaves


def _growth(site: Site, pool: PoolName, wish: Wish, grown: Grown) -> Step:
    names = {"stay": grown.stay, "wake": grown.wake, "start": grown.start, "found": grown.found}
    inputs: list[Input] = [figure(name, count, "instances") for name, count in names.items()]
    inputs.append(figure("wanted", wish.after - wish.before, "instances"))
    tp = site.policy(pool).tp
    inputs.append(figure("missing", grown.short * tp, "GPUs", subject=BUFFER))
    inputs.append(figure("block", tp, "GPUs"))
    return Step(ID, _found(site, pool, grown), Vote.ABSTAIN, tuple(inputs))


def _found(site: Site, pool: PoolName, grown: Grown) -> Code:
    """What can never fit is said apart from what does not fit now: no wait makes a node larger."""
    if not grown.short:
        return Code.FOUND
    return Code.SHORT if has_shape(site, pool) else Code.NO_SHAPE


def _with_evictions(drafted: _Drafted) -> dict[PoolName, tuple[Step, ...]]:
    """The steps, with a word to each pool of which somebody else takes GPUs."""
    steps = dict(drafted.steps)
    counts: dict[tuple[PoolName, PoolName], int] = {}
    for instance, by in drafted.draft.evicted_for.items():
        key = drafted.draft.moves[instance].pool, by
        counts[key] = counts.get(key, 0) + 1
    for (pool, by), count in sorted(counts.items()):
        told = Step(ID, Code.EVICTED, Vote.ABSTAIN, (figure("evicted", count, "instances", subject=by),))
        steps[pool] = (*steps.get(pool, ()), told)
    return steps
