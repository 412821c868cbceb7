"""One pool's policy file: its keys, what each may hold, and the domain value it becomes.

There is no key for a command, a URL, a file, a secret or a receiver's address, and none
for a metric's name: a policy from a pull request can reach nothing and run nothing.
Defaults are the domain's; times are seconds once read.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controlplane.adapters.policyfiles.leaves import (
    LABEL,
    MODEL,
    REFERENCE,
    duration,
    number,
    ratio,
    whole,
    word,
)
from controlplane.adapters.policyfiles.shape import Closed, defaults
from controlplane.domain import policy as domain
from controlplane.domain.ids import PoolName

_SLO = defaults(domain.Slo)
_CAPACITY = defaults(domain.CapacityPolicy)
_WEIGHTS = defaults(domain.WeightPolicy)
_EVIDENCE = defaults(domain.EvidencePolicy)
_POOL = defaults(domain.PoolPolicy)


class SloSection(Closed):
    """What callers were promised. Refused and failed requests count as misses."""

    ttft_p95: Annotated[float, duration("10ms", "10m")]
    """Time to the first token, waiting at the gateway included, that 95 % of requests stay under."""
    tpot_p95: Annotated[float, duration("1ms", "10s")]
    """Time per output token after the first that 95 % of requests stay under."""
    e2e_p95: Annotated[float | None, duration("100ms", "2h")] = _SLO["e2e_p95_s"]
    """Time to the last token that 95 % of requests stay under. Leave it out for no such promise."""
    target_share: Annotated[float, ratio(0.5, 0.9999)] = _SLO["target_share"]
    """Share of requests that must keep the promise."""
    window: Annotated[float, duration("1m", "1d")] = _SLO["window_s"]
    """Span over which the share is counted."""

    def value(self) -> domain.Slo:
        """The domain's value of this section."""
        return domain.Slo(self.ttft_p95, self.tpot_p95, self.e2e_p95, self.target_share, self.window)


class CapacitySection(Closed):
    """How many instances the pool may have, and how fast that may change."""

    min: Annotated[int, whole(0, 10_000)]
    """Fewest instances. 0 only where demand is visible outside the instances (routing: gateway)."""
    max: Annotated[int, whole(1, 10_000)]
    """Most instances."""
    target_utilisation: Annotated[float, ratio(0.1, 1.0)] = _CAPACITY["target_utilisation"]
    """Share of what the instances carry within the SLO that the pool should run at."""
    grow_above: Annotated[float, ratio(0.1, 1.0)] = _CAPACITY["grow_above"]
    """Growth starts above this share of what the ready instances carry."""
    shrink_below: Annotated[float, ratio(0.05, 0.99)] = _CAPACITY["shrink_below"]
    """Shrinking only where the rest would stay under this share; below grow_above."""
    grow_step: Annotated[float, ratio(0.01, 4.0)] = _CAPACITY["grow_step"]
    """Largest growth in one decision, as a share of the pool (at least one instance)."""
    shrink_step: Annotated[float, ratio(0.01, 1.0)] = _CAPACITY["shrink_step"]
    """Largest shrinking in one decision, as a share of the pool (at least one instance)."""
    grow_cooldown: Annotated[float, duration("0s", "1h")] = _CAPACITY["grow_cooldown_s"]
    """Wait after a growth before the next one."""
    shrink_cooldown: Annotated[float, duration("0s", "1d")] = _CAPACITY["shrink_cooldown_s"]
    """Wait after any change before a shrinking."""
    stabilise: Annotated[float | None, duration("0s", "1d")] = _CAPACITY["stabilise_s"]
    """The largest want of this span counts for shrinking; without it, of three cold starts."""
    drain: Annotated[float, duration("1s", "1h")] = _CAPACITY["drain_s"]
    """Longest wait for the open requests of an instance that leaves; then they are cut."""

    def value(self) -> domain.CapacityPolicy:
        """The domain's value of this section."""
        return domain.CapacityPolicy(
            minimum=self.min,
            maximum=self.max,
            target_utilisation=self.target_utilisation,
            grow_above=self.grow_above,
            shrink_below=self.shrink_below,
            grow_step=self.grow_step,
            shrink_step=self.shrink_step,
            grow_cooldown_s=self.grow_cooldown,
            shrink_cooldown_s=self.shrink_cooldown,
            stabilise_s=self.stabilise,
            drain_s=self.drain,
        )


class WeightsSection(Closed):
    """How routing weights follow measured speed. Multiples of the pool's median."""

    deadband: Annotated[float, ratio(0.0, 0.5)] = _WEIGHTS["deadband"]
    """Within this distance from the pool's median speed, weights are exactly equal."""
    step: Annotated[float, ratio(0.01, 1.0)] = _WEIGHTS["step"]
    """Largest change of a weight in one cycle, as a share of it."""
    floor: Annotated[float, ratio(0.01, 1.0)] = _WEIGHTS["floor"]
    """Lowest weight."""
    ceiling: Annotated[float, number(1.0, 2.0)] = _WEIGHTS["ceiling"]
    """Highest weight: an instance that claims to be fast must not attract all traffic."""
    min_running: Annotated[float, number(0.0, 1000.0)] = _WEIGHTS["min_running"]
    """Mean running requests that an instance needs for its speed to be believed."""

    def value(self) -> domain.WeightPolicy:
        """The domain's value of this section."""
        return domain.WeightPolicy(self.deadband, self.step, self.floor, self.ceiling, self.min_running)


class EvidenceSection(Closed):
    """What counts as seen. Below it the pool is held: growing stays possible, shrinking does not."""

    window: Annotated[float, duration("2s", "1h")] = _EVIDENCE["window_s"]
    """Span of rates and quantiles: at least four scrape intervals."""
    max_age: Annotated[float, duration("2s", "10m")] = _EVIDENCE["max_age_s"]
    """Oldest sample that is acted upon: at least two scrape intervals."""
    coverage: Annotated[float, ratio(0.5, 1.0)] = _EVIDENCE["coverage"]
    """Least share of instances that must be seen."""
    breach_cycles: Annotated[int, whole(1, 1000)] = _EVIDENCE["breach_cycles"]
    """Cycles in a row that latency must stand above its target to be believed."""
    page_after_cycles: Annotated[int, whole(1, 10_000)] = _EVIDENCE["page_after_cycles"]
    """Blind cycles in a row after which somebody is paged, once."""
    min_samples: Annotated[int, whole(1, 100_000)] = _EVIDENCE["min_samples"]
    """Fewest finished requests in the window that a quantile is believed from."""

    def value(self) -> domain.EvidencePolicy:
        """The domain's value of this section."""
        return domain.EvidencePolicy(
            window_s=self.window,
            max_age_s=self.max_age,
            coverage=self.coverage,
            breach_cycles=self.breach_cycles,
            page_after_cycles=self.page_after_cycles,
            min_samples=self.min_samples,
        )


class ModeSection(Closed):
    """How far each kind of action may go without a person: observe, recommend or auto."""

    weights: Annotated[domain.Mode, word(domain.Mode)] = _POOL["weights_mode"]
    """Routing weights, limits and closing: fast, small, reversible."""
    capacity: Annotated[domain.Mode, word(domain.Mode)] = _POOL["capacity_mode"]
    """Numbers of instances."""


class PolicyFile(Closed):
    """The policy of one pool of one model and shape."""

    pool: Annotated[str, LABEL]
    """The pool's name; also its backend's name in the gateway."""
    model: Annotated[str, MODEL]
    """The model's name as callers write it in a request."""
    profile: Annotated[str, REFERENCE]
    """The measured profile that says what one instance carries."""
    tp: Annotated[int, whole(1, 64)]
    """GPUs of one node that one instance uses (tensor parallel size); equal to the profile's."""
    kind: Annotated[domain.PoolKind, word(domain.PoolKind)] = _POOL["kind"]
    """Whether somebody waits for the answers (online) or not (offline)."""
    routing: Annotated[domain.Routing, word(domain.Routing)] = _POOL["routing"]
    """Who routes each request; with external, no weights are pushed."""
    priority: Annotated[int, whole(0, 100)] = _POOL["priority"]
    """Who is served first where GPUs are short: 100 before 0."""
    limit: Annotated[int | None, whole(1, 100_000)] = _POOL["limit"]
    """Most requests in flight at one instance. Leave it out to take the profile's."""
    slo: SloSection
    capacity: CapacitySection
    weights: WeightsSection = Field(default_factory=WeightsSection)
    evidence: EvidenceSection = Field(default_factory=EvidenceSection)
    mode: ModeSection = Field(default_factory=ModeSection)

    def value(self) -> domain.PoolPolicy:
        """The domain's value of the file."""
        return domain.PoolPolicy(
            pool=PoolName(self.pool),
            model=self.model,
            tp=self.tp,
            profile=self.profile,
            slo=self.slo.value(),
            capacity=self.capacity.value(),
            weights=self.weights.value(),
            evidence=self.evidence.value(),
            kind=self.kind,
            routing=self.routing,
            priority=self.priority,
            limit=self.limit,
            weights_mode=self.mode.weights,
            capacity_mode=self.mode.capacity,
        )
