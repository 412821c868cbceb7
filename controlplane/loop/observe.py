"""From answers to one `Observation`. Pure: what did not arrive is Missing, with its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.domain.fleet import Instance, Inventory
from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import CycleKind, InstanceId
from controlplane.domain.loans import Loan
from controlplane.domain.observation import Hold, Observation, Reach
from controlplane.domain.readings import Cause, Column, Missing, Reading, Signal
from controlplane.ports import MetricsAnswer


@dataclass(frozen=True, slots=True)
class Answers:
    """What the ports said in one cycle. `last_known`: instances of the last inventory that came."""

    metrics: MetricsAnswer
    inventory: Inventory | Missing
    gateways: Mapping[str, GatewayView | Missing]
    holds: tuple[Hold, ...]
    last_known: tuple[Instance, ...]
    loans: tuple[Loan, ...] = ()
    reach: Reach = Reach.NOTHING


def assemble(cluster: str, kind: CycleKind, now: float, answers: Answers) -> Observation:
    """One cycle's input. Instances are the inventory's and nobody else's: a series without an
    inventory row is no instance, and a row without a series is one that is unseen."""
    instances = ordered(answers.inventory, answers.last_known)
    return Observation(
        cluster=cluster,
        kind=kind,
        now=now,
        instances=instances,
        signals=_columns(answers.metrics, instances),
        pools=answers.metrics.pools,
        gateways=answers.gateways,
        inventory=answers.inventory,
        source=answers.metrics.health,
        holds=answers.holds,
        loans=answers.loans,
        reach=answers.reach,
    )


def ordered(inventory: Inventory | Missing, last_known: Sequence[Instance]) -> tuple[Instance, ...]:
    """Instances by pool and id; the last known ones while the orchestrator is silent."""
    known = inventory.instances if isinstance(inventory, Inventory) else last_known
    return tuple(sorted(known, key=lambda each: (each.pool, each.instance_id)))


def _columns(answer: MetricsAnswer, instances: Sequence[Instance]) -> dict[Signal, Column]:
    asked = sorted(set(answer.instances) | set(answer.absent))
    return {
        signal: _column(answer.instances.get(signal, {}), answer.absent.get(signal, Cause.UNSEEN), instances)
        for signal in asked
    }


def _column(readings: Mapping[InstanceId, Reading], absent: Cause, instances: Sequence[Instance]) -> Column:
    return Column.of([readings.get(each.instance_id, Missing(absent)) for each in instances])
