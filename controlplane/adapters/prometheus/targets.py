"""What exists, by Prometheus' own list of targets: for fleets whose instances somebody else makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from controlplane.adapters.prometheus.client import Failure, PrometheusClient, Result
from controlplane.adapters.prometheus.envelope import Sample
from controlplane.domain.fleet import Instance, Phase
from controlplane.domain.ids import InstanceId, NodeId, PoolName
from controlplane.domain.trust import FUTURE_TOLERANCE_S
from controlplane.ports import Unavailable

_UP, _STARTED = "up", "process_start_time_seconds"


def instances(client: PrometheusClient, cluster: str) -> tuple[Instance, ...]:
    """An instance for each target with a pool and an instance_id, in id order; its `tp` is not known and
    stands as 1. Raises Unavailable where there are none, or the list may not be whole.
    """
    where = f'{{cluster="{cluster}",pool!="",instance_id!=""}}'
    answers = client.ask({name: f"{name}{where}" for name in (_UP, _STARTED)})
    up, started = (_whole(name, answers[name]) for name in (_UP, _STARTED))
    if not up:
        raise Unavailable(f"Prometheus has no target with pool and instance_id in cluster {cluster}")
    return tuple(
        _instances(up, {each.labels["instance_id"]: each.value for each in started if _can_be(each)})
    )


def _can_be(started: Sample) -> bool:
    """Whether a start is finite and not still to come: else its engine would never be expected to report."""
    return 0.0 < started.value <= started.at + FUTURE_TOLERANCE_S


def _whole(name: str, answer: Result) -> Sequence[Sample]:
    """All samples. Half a list of targets would be half a fleet."""
    if isinstance(answer, Failure):
        raise Unavailable(f"Prometheus, query {name}: {answer.detail}")
    if answer.vector.warnings:
        raise Unavailable(f"Prometheus, query {name}: its answer is partial: {answer.vector.warnings[0]}")
    return answer.vector.samples


def _instances(targets: Sequence[Sample], started: Mapping[str, float]) -> Iterator[Instance]:
    """Two targets of one instance are one, which answers where either does."""
    by_id = {each.labels["instance_id"]: each for each in sorted(targets, key=lambda each: each.value)}
    for name, target in sorted(by_id.items()):
        yield _instance(InstanceId(name), target, started.get(name))


def _instance(name: InstanceId, target: Sample, started_at: float | None) -> Instance:
    return Instance(
        instance_id=name,
        pool=PoolName(target.labels["pool"]),
        node=NodeId(target.labels.get("node", "")),
        tp=1,
        phase=Phase.SERVING if target.value == 1.0 else Phase.UNREACHABLE,
        address=target.labels.get("instance", ""),
        started_at=started_at or 0.0,
        ready_at=started_at,
    )
