"""Our own metrics, once: name, kind, labels, unit and help. Plain data, read by exporter and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus' types, as far as we use them."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. A counter's name stands here with its `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: str, text: str) -> Family:
    return Family(f"trimtab_{name}", Kind.GAUGE, tuple(labels.split()), text)


def _counter(name: str, labels: str, text: str) -> Family:
    return Family(f"trimtab_{name}_total", Kind.COUNTER, tuple(labels.split()), text)


BUILD_INFO = _gauge("build_info", "cluster version", "1, with the version that runs.")
CYCLE_INTERVAL = _gauge("cycle_interval_seconds", "cluster kind", "Configured seconds between cycles.")
CYCLE_AGE = _gauge(
    "last_cycle_age_seconds", "cluster kind", "Monotonic seconds since the last finished cycle."
)
CYCLE_DURATION = _gauge("cycle_duration_seconds", "cluster kind", "Seconds that the last cycle took.")
CYCLES = _counter(
    "cycles", "cluster kind result", "Cycles by result: done, failed (a port), broken (a defect)."
)
DECISIONS = _counter("decisions", "cluster kind pool outcome", "Decisions by outcome.")
ACTIONS = _counter("actions", "cluster pool kind state", "Actions by the state they ended a cycle in.")
BLIND = _gauge("blind_cycles", "cluster pool", "Cycles in a row in which the pool was below its coverage.")
HELD = _gauge("held", "cluster pool", "1 while the last decision held the pool.")
WEIGHT = _gauge(
    "weight", "cluster pool gateway instance_id", "Weight as the gateway has it, in its own range."
)
LIMIT = _gauge(
    "limit_requests",
    "cluster pool gateway instance_id",
    "Limit of requests in flight, as the gateway has it.",
)
GATEWAY_UP = _gauge(
    "gateway_up", "cluster gateway", "1 where the gateway answered the last cycle, 0 where not."
)
INVENTORY_UP = _gauge(
    "inventory_up", "cluster", "1 where the orchestrator answered the last cycle, 0 where not."
)
DESIRED = _gauge(
    "desired_replicas",
    "cluster pool",
    "Instances that a pool should have, for an HPA or KEDA that follows it. Absent until one is ordered.",
)
UNCONFIRMED = _gauge(
    "gateway_unconfirmed_requests",
    "cluster pool",
    "Requests in flight that a gateway counts and no engine knows of.",
)
IMBALANCE = _gauge(
    "imbalance_ratio",
    "cluster pool of counter",
    "Largest distance from the pool's mean, at the last capacity cycle. NaN where it is undefined.",
)
HOTTEST = _gauge(
    "hottest_instance_ratio",
    "cluster pool of instance_id",
    "The largest figure among those that the imbalance compares, and whose it is.",
)
TARGET = _gauge(
    "pool_target_seconds",
    "cluster pool pool_kind signal",
    "What the pool's policy in force promises, by signal.",
)
QUERIES = _gauge("queries", "cluster kind", "Queries to the metrics source in the last cycle.")
QUERY_FAILURES = _counter("query_failures", "cluster kind query", "Queries that gave nothing.")
REJECTED = _counter("rejected_samples", "cluster kind", "Readings dropped as impossible.")
SKEW = _gauge("source_clock_skew_seconds", "cluster", "The metrics source's clock minus ours.")
POLICY_VALID = _gauge(
    "policies_valid",
    "cluster",
    "1 while the policy files as they stand are in force, 0 while an older version is.",
)
GPUS = _gauge(
    "gpus",
    "cluster pool state",
    "GPUs, each counted once, by state: pool (where it serves, lent or not), buffer, unavailable.",
)
UNACCOUNTED = _gauge(
    "gpus_unaccounted", "cluster", "GPUs that the inventory counts twice, or on a node that nobody knows."
)
LOANS = _gauge("loans_open", "cluster pool", "Open loans, by the pool that borrows.")
LOANED = _gauge("loaned_gpus", "cluster pool", "GPUs on loan, by the pool that borrows.")
SHORT = _gauge(
    "capacity_short_gpus",
    "cluster pool",
    "GPUs that the pool asked for in the last capacity cycle and for which there was no place.",
)
PAGES = _counter(
    "pages",
    "cluster alertname severity status",
    "Pages that began (firing) or ended (resolved), each counted once however often it was told.",
)

FAMILIES: tuple[Family, ...] = (
    BUILD_INFO,
    CYCLE_INTERVAL,
    CYCLE_AGE,
    CYCLE_DURATION,
    CYCLES,
    DECISIONS,
    ACTIONS,
    BLIND,
    HELD,
    WEIGHT,
    LIMIT,
    GATEWAY_UP,
    INVENTORY_UP,
    DESIRED,
    UNCONFIRMED,
    IMBALANCE,
    HOTTEST,
    TARGET,
    QUERIES,
    QUERY_FAILURES,
    REJECTED,
    SKEW,
    POLICY_VALID,
    GPUS,
    UNACCOUNTED,
    LOANS,
    LOANED,
    SHORT,
    PAGES,
)
BY_NAME: Mapping[str, Family] = {family.name: family for family in FAMILIES}
