"""What a GPU exporter says of one node's cards, in DCGM's names and units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MODEL_NAME = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_559
CLOCK_MHZ = 1_980
THROTTLED_CLOCK_MHZ = 1_095
IDLE_CELSIUS, BUSY_CELSIUS, THROTTLED_CELSIUS = 34.0, 62.0, 86.0
IDLE_WATTS, BUSY_WATTS = 95.0, 620.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card at one scrape. `duty`: share of the sample period in which any step ran, 0..1;
    `sequences`: mean running sequences during those steps; `seats`: the most it runs at once."""

    node: str
    index: int
    pod: str | None
    duty: float
    sequences: float
    seats: int
    throttled: bool
    memory_share: float
    xid: int = 0


def sm_active(duty: float, sequences: float, seats: int) -> float:
    """Share of SM cycles with a warp assigned: `duty * (0.18 + 0.62 * (s/seats)^0.5)`.

    A step with one sequence keeps few SMs busy (decode is bound by memory), a full batch most of
    them. A plain concave curve, documented in docs/twin.md: not measured, and no function of busyness
    as the control plane computes it.
    """
    return duty * (0.18 + 0.62 * math.sqrt(min(1.0, sequences / max(1, seats))))


def dram_active(duty: float, sequences: float, seats: int) -> float:
    """Share of memory cycles in use: every step reads the weights whole, so it is high early."""
    return duty * (0.55 + 0.30 * min(1.0, sequences / max(1, seats)))


class _Cards(Collector):
    def __init__(self, cards: Iterable[Gpu]) -> None:
        self._cards = list(cards)

    def collect(self) -> Iterator[Metric]:
        for name, text, value in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            for card in self._cards:
                family.add_metric(_labels(card), value(card))
            yield family


_LABELS = ["gpu", "UUID", "device", "modelName", "Hostname", "container", "namespace", "pod"]


def _labels(card: Gpu) -> list[str]:
    uuid = f"GPU-{card.node}-{card.index}"
    holder = ["vllm", "demo", card.pod] if card.pod else ["", "", ""]
    return [str(card.index), uuid, f"nvidia{card.index}", MODEL_NAME, card.node, *holder]


_GAUGES = (
    (
        "DCGM_FI_DEV_SM_CLOCK",
        "SM clock frequency (in MHz).",
        lambda c: THROTTLED_CLOCK_MHZ if c.throttled else CLOCK_MHZ,
    ),
    (
        "DCGM_FI_DEV_GPU_TEMP",
        "GPU temperature (in C).",
        lambda c: THROTTLED_CELSIUS if c.throttled else IDLE_CELSIUS + c.duty * (BUSY_CELSIUS - IDLE_CELSIUS),
    ),
    (
        "DCGM_FI_DEV_POWER_USAGE",
        "Power draw (in W).",
        lambda c: IDLE_WATTS + c.duty * (BUSY_WATTS - IDLE_WATTS) * (0.5 if c.throttled else 1.0),
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda c: round(100.0 * c.duty)),
    ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", lambda c: c.xid),
    (
        "DCGM_FI_DEV_FB_FREE",
        "Framebuffer memory free (in MiB).",
        lambda c: MEMORY_MIB - round(MEMORY_MIB * c.memory_share),
    ),
    (
        "DCGM_FI_DEV_FB_USED",
        "Framebuffer memory used (in MiB).",
        lambda c: round(MEMORY_MIB * c.memory_share),
    ),
    (
        "DCGM_FI_PROF_SM_ACTIVE",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        lambda c: sm_active(c.duty, c.sequences, c.seats),
    ),
    (
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active.",
        lambda c: dram_active(c.duty, c.sequences, c.seats),
    ),
)


def render(cards: Iterable[Gpu]) -> bytes:
    """The text of one node's exporter."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Cards(cards))
    return generate_latest(registry)
