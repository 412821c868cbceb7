"""A capacity cycle for one pool: rules in order, one number out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from controlplane.domain import asked, rules
from controlplane.domain.combine import Merge, merge, start
from controlplane.domain.explanation import Explanation, Input, Step, Vote
from controlplane.domain.forecast import PoolForecast
from controlplane.domain.imbalance import Imbalance, of_busyness, of_utilisation
from controlplane.domain.load import Load, offered_load
from controlplane.domain.memory import seen_again
from controlplane.domain.plan import Action, ActionKind, Decision, Outcome
from controlplane.domain.rules import coverage, human_hold, in_flight, latency, stabilise, votes
from controlplane.domain.rules.base import CapacityView, Rule, absent, figure
from controlplane.domain.state import PoolState
from controlplane.domain.view import PoolView, standing


@dataclass(frozen=True, slots=True)
class _Fold:
    """Steps so far, and the number as it stands."""

    steps: tuple[Step, ...]
    so_far: Merge

    def then(self, view: CapacityView, chosen: Iterable[Rule]) -> _Fold:
        fold = self
        for rule in chosen:
            fold = fold.add(rule.propose(view, fold.so_far))
        return fold

    def add(self, step: Step) -> _Fold:
        so_far, with_clamps = merge(self.so_far, step)
        return _Fold((*self.steps, with_clamps), so_far)


def decide_capacity(pool: PoolView, forecast: PoolForecast | None) -> tuple[Decision, PoolState]:
    """How many instances the pool should have, and why."""
    if pool.unsized:
        return _left_alone(pool, coverage.assess(pool)), seen_again(pool)
    load = with_forecast(offered_load(pool), forecast)
    view = CapacityView(pool, load, pool.size)
    evidence = _Fold((), start(float(view.before))).then(view, rules.EVIDENCE)
    wishes = evidence.then(view, rules.WISHES)
    wanted = wishes.add(votes.count(view.before, evidence.steps)).then(view, rules.DAMPERS)
    done = wanted.then(view, rules.LIMITS)
    steps = (*done.steps, shown(pool), *_level(view, int(done.so_far.value)))
    decision = _decision(view, replace(done, steps=steps))
    return decision, _remember(view, int(wanted.so_far.value), int(done.so_far.value))


def with_forecast(load: Load, forecast: PoolForecast | None) -> Load:
    """The load, no less than what is forecast for the horizon."""
    if forecast is None:
        return load
    ahead = forecast.load_instances
    return replace(
        load,
        lower=max(load.lower, ahead),
        upper=None if load.upper is None else max(load.upper, ahead),
        sustained=max(load.sustained, ahead),
    )


def shown(pool: PoolView) -> Step:
    """Figures that decide nothing here and are read by every surface alike."""
    found = {"utilisation": of_utilisation(pool), "busyness": of_busyness(pool)}
    spreads = [imbalance_input(f"imbalance_{of}", each) for of, each in found.items()]
    hottest = [
        figure(f"hottest_{of}", each.hottest.value, "ratio", subject=each.hottest.instance)
        for of, each in found.items()
        if each.hottest is not None
    ]
    return Step("imbalance", "imbalance_shown", Vote.ABSTAIN, (*spreads, *hottest))


def imbalance_input(name: str, imbalance: Imbalance) -> Input:
    """An imbalance as an input; its subject says which counter it was computed on."""
    if imbalance.value is None:
        return absent(name, "ratio", imbalance.cause, subject=imbalance.counter)
    return figure(name, imbalance.value, "ratio", subject=imbalance.counter)


def _left_alone(pool: PoolView, why: Step) -> Decision:
    """No number at all: a level counted from an unknown size would be an order to shrink."""
    explanation = Explanation((why, shown(pool)), why.rule, why.code, None, None)
    return Decision(pool.policy.pool, pool.policy.capacity_mode, Outcome.HELD, (), explanation)


def _decision(view: CapacityView, fold: _Fold) -> Decision:
    policy, after = view.pool.policy, int(fold.so_far.value)
    step = _deciding(view, fold)
    explanation = Explanation(fold.steps, step.rule, step.code, float(view.before), float(after))
    actions: tuple[Action, ...] = ()
    if _is_ordered(view, after):
        seen = view.pool.asked if view.pool.by_number else view.before
        actions = (Action(ActionKind.SET_INSTANCES, policy.pool, "", None, after, seen, step.code),)
    return Decision(policy.pool, policy.capacity_mode, _outcome(view, after), actions, explanation)


def _is_ordered(view: CapacityView, after: int) -> bool:
    """Whether a number has to be asked for. Where orders are numbers, the last one is not what stands,
    and a held pool's stays as it is: what is unseen may be there, so it is told no smaller one."""
    pool = view.pool
    if not pool.by_number:
        return after != view.before
    smaller = _held(view) and after < _level_of(view, after)
    return not (pool.holds or smaller or _watches(pool)) and after != pool.asked


def _level_of(view: CapacityView, after: int) -> int:
    """The number that stands after this cycle. A held pool keeps the last one, up to its maximum: what was
    asked for and has not come may only be unseen."""
    pool, last = view.pool, view.pool.state.last_target
    if not pool.by_number or not _held(view) or last is None:
        return after
    return max(after, min(last, pool.policy.capacity.maximum))


def _watches(pool: PoolView) -> bool:
    """Whether a pool of which no number is asked for is still new to us: a list of targets that is only
    filling up would make us ask for less than there is."""
    since = pool.state.seen_since
    return pool.asked is None and (since is None or pool.now - since < pool.policy.evidence.window_s)


def _level(view: CapacityView, after: int) -> tuple[Step, ...]:
    """What becomes of the number, in a step of its own: it may be asked for where nothing changes."""
    pool = view.pool
    if not pool.by_number:
        return ()
    since = pool.now if pool.state.seen_since is None else pool.state.seen_since
    inputs = (
        figure("asked", pool.asked, "instances"),
        figure("watched", pool.now - since, "seconds"),
        figure("window", pool.policy.evidence.window_s, "seconds"),
    )
    code = asked.Code.ORDERED if _is_ordered(view, after) else asked.Code.STANDS
    return (Step(asked.ID, asked.Code.WATCHES if _watches(pool) else code, Vote.ABSTAIN, inputs),)


def _outcome(view: CapacityView, after: int) -> Outcome:
    if after != view.before:
        return Outcome.CHANGE
    return Outcome.HELD if _held(view) else Outcome.NOTHING_TO_DO


def _held(view: CapacityView) -> bool:
    return bool(view.pool.holds) or view.pool.blind or not view.pool.inventory_known


def _deciding(view: CapacityView, fold: _Fold) -> Step:
    """Whose reason stands for the whole: a hold, if there is one and the pool did not change; who
    first wanted the change, if there is one; else whoever stopped it, and where that was the count
    of votes, the first who blocked."""
    by_rule = {step.rule: step for step in fold.steps}
    author, unchanged = fold.so_far.author, fold.so_far.value == view.before
    if view.pool.holds:
        return by_rule[human_hold.ID]
    if unchanged and _held(view):
        return by_rule[coverage.ID]
    if not unchanged:
        return by_rule[_wanted_by(view.before, author, by_rule)]
    blockers = [step for step in fold.steps if step.vote is Vote.BLOCK]
    return blockers[0] if author == votes.ID and blockers else by_rule[author]


def _wanted_by(before: int, author: str, by_rule: Mapping[str, Step]) -> str:
    """The rule behind `author`'s number: back over clamps that only tempered the same wish."""
    for clamp in reversed(by_rule[author].clamps):
        if (clamp.before - before) * (clamp.after - before) > 0:
            return _wanted_by(before, clamp.whom, by_rule)
    return author


def _remember(view: CapacityView, wanted: int, after: int) -> PoolState:
    pool, state, target = view.pool, view.pool.state, _level_of(view, after)
    changed = after not in {view.before, state.last_target}
    return replace(
        seen_again(pool),
        wants=stabilise.remembered(view, wanted),
        last_grow_at=pool.now if changed and after > view.before else state.last_grow_at,
        last_shrink_at=pool.now if changed and after < view.before else state.last_shrink_at,
        breaches=latency.breaches(view),
        unconfirmed_since=in_flight.unconfirmed_since(view),
        last_target=target,
        stood=asked.stood(state, standing(pool.instances), target),
    )
