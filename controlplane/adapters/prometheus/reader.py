"""All tables of a cycle together: evidence for every instance and pool, then their readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from controlplane.adapters.engines.template import SCRAPES_IN_WINDOW, Helper, Level, Source, Template
from controlplane.adapters.prometheus.brought import Brought
from controlplane.adapters.prometheus.judge import Evidence, judge
from controlplane.adapters.prometheus.moments import falls, square_mean
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.domain.policy import EvidencePolicy, Policies
from controlplane.domain.readings import Cause, Known, Missing, PoolSignal, Reading, Signal

_AGE_OF = {
    Source.TARGET: Helper.TARGET_AGE,
    Source.ENGINE: Helper.ENGINE_AGE,
    Source.GPU: Helper.GPU_AGE,
    Source.GATEWAY: Helper.GATEWAY_AGE,
    Source.DOOR: Helper.DOOR_AGE,
}


@dataclass
class Reader:
    """Judges what a cycle's queries brought. `now`: the cycle's instant, our clock;
    `interval_s`: scrape interval. `rejected` counts readings dropped as impossible."""

    brought: tuple[Brought, ...]
    policies: Policies
    now: float
    interval_s: float
    rejected: int = 0
    remarks: list[str] = field(default_factory=list)
    _shared: dict[tuple[str, Source, Level, str], Evidence] = field(default_factory=dict)

    def instances(self) -> Mapping[Signal, Mapping[InstanceId, Reading]]:
        """Every asked signal of every instance that any query mentioned."""
        found: dict[Signal, Mapping[InstanceId, Reading]] = {}
        for each in self.brought:
            for signal, template in each.signals():
                found[signal] = {
                    instance: self._instance(each, template, instance) for instance in self._pool_of
                }
        return found

    def pools(self) -> Mapping[PoolName, Mapping[PoolSignal, Reading]]:
        """Every asked signal of every pool that has a policy."""
        return {pool: self._signals_of(pool) for pool in self.policies.pools}

    def absent(self) -> Mapping[Signal, Cause]:
        """Why an instance that no query mentioned is missing, by asked signal."""
        return {
            signal: Cause.UNSEEN if each.absent is Cause.NOT_EXPORTED else each.absent
            for each in self.brought
            for signal, _ in each.signals()
        }

    def _signals_of(self, pool: PoolName) -> Mapping[PoolSignal, Reading]:
        found: dict[PoolSignal, Reading] = {}
        for each in self.brought:
            for signal, template in each.pool_signals():
                found[signal] = self._pool(each, template, pool)
                if signal is PoolSignal.OUTPUT_MEAN:
                    found[PoolSignal.OUTPUT_SQUARE_MEAN] = self._square(each, pool, found[signal])
        return found

    def _instance(self, each: Brought, template: Template, instance: InstanceId) -> Reading:
        if each.failed is not None:
            return Missing(each.failed)
        pool = self._pool_of[instance]
        evidence = self._evidence(each, template, instance, self._policy(pool), instance in self._idle)
        return self._counting(judge(template, each.table.values(template, instance), evidence))

    def _pool(self, each: Brought, template: Template, pool: PoolName) -> Reading:
        if each.failed is not None:
            return Missing(each.failed)
        if each.partial:
            return Missing(Cause.PARTIAL, "a sum over an incomplete answer")
        idle = bool(self._members[pool]) and self._members[pool] <= self._idle
        evidence = self._evidence(each, template, pool, self._policy(pool), idle)
        return self._counting(judge(template, each.table.values(template, pool), evidence))

    def _evidence(
        self, each: Brought, template: Template, subject: str, policy: EvidencePolicy, idle: bool
    ) -> Evidence:
        key = (each.ask.name, template.source, template.level, subject)
        if key not in self._shared:
            self._shared[key] = self._of_source(each, template, subject, policy, idle)
        shared = self._shared[key]
        if template.counted_by is None:
            return shared
        return replace(shared, count=each.helper(template.counted_by, template.level, subject))

    def _of_source(
        self, each: Brought, template: Template, subject: str, policy: EvidencePolicy, idle: bool
    ) -> Evidence:
        """What is the same for all signals that one exporter says of one subject."""

        def helped(helper: Helper) -> float | None:
            return each.helper(helper, template.level, subject)

        age_s = helped(_AGE_OF[template.source])
        return Evidence(
            now=self.now,
            age_s=None if age_s is None else age_s + each.lag_s,
            absent=each.absent,
            offered=template.source is not Source.DOOR or _has_doors(each),
            claimed_twice=helped(Helper.DUPLICATE_TARGETS) is not None,
            short_history=helped(Helper.SHORT_HISTORY) is not None or self._too_short(policy),
            false_resets=helped(Helper.FALSE_RESETS) is not None,
            rejected=helped(Helper.GPU_REJECTED) is not None,
            idle=idle,
            min_samples=policy.min_samples,
        )

    def _counting(self, reading: Reading) -> Reading:
        if isinstance(reading, Missing) and reading.cause is Cause.OUT_OF_RANGE:
            self.rejected += 1
        return reading

    def _square(self, each: Brought, pool: PoolName, mean: Reading) -> Reading:
        if isinstance(mean, Missing):
            return mean
        buckets = each.table.buckets.get(pool, [])
        if falls(buckets):
            self.remarks.append(f"{pool}: length buckets fall with a rising bound; repaired")
        square = square_mean(buckets, mean.value)
        return Missing(Cause.NOT_EXPORTED) if square is None else Known(square, mean.sampled_at)

    def _policy(self, pool: PoolName) -> EvidencePolicy:
        known = self.policies.pools.get(pool)
        return EvidencePolicy() if known is None else known.evidence

    def _too_short(self, policy: EvidencePolicy) -> bool:
        return policy.window_s < self.interval_s * SCRAPES_IN_WINDOW

    @cached_property
    def _pool_of(self) -> Mapping[InstanceId, PoolName]:
        return {instance: pool for each in self.brought for instance, pool in each.table.pool_of.items()}

    @cached_property
    def _members(self) -> Mapping[PoolName, set[InstanceId]]:
        members: defaultdict[PoolName, set[InstanceId]] = defaultdict(set)
        for instance, pool in self._pool_of.items():
            members[pool].add(instance)
        return members

    @cached_property
    def _idle(self) -> set[InstanceId]:
        """Instances proven to have run nothing in the whole window: a seen mean of exactly zero."""
        return {
            instance
            for each in self.brought
            for signal, template in each.signals()
            if signal is Signal.RUNNING_MEAN
            for instance in self._pool_of
            if each.table.values(template, instance) == [0.0]
            and each.helper(Helper.ENGINE_AGE, Level.INSTANCE, instance) is not None
        }


def _has_doors(each: Brought) -> bool:
    """Whether a gateway exporter is scraped at all. A fleet without one lacks nothing; one whose exporter is
    silent lacks what it says."""
    return bool(each.helper(Helper.DOORS, Level.RULES, ""))
