"""Policies for these tests: one pool that matters, with a window to choose."""

from __future__ import annotations

from controlplane.domain.ids import PoolName
from controlplane.domain.policy import (
    CapacityPolicy,
    EvidencePolicy,
    Policies,
    PolicyVersion,
    PoolPolicy,
    Slo,
)

CHAT = PoolName("chat")


def policies(*pools: str, window_s: float = 60.0, min_samples: int = 20) -> Policies:
    """Thin policies for the named pools (default: chat)."""
    evidence = EvidencePolicy(window_s=window_s, min_samples=min_samples)
    slo, capacity = Slo(ttft_p95_s=1.0, tpot_p95_s=0.1), CapacityPolicy(1, 8)
    made = {
        PoolName(pool): PoolPolicy(PoolName(pool), "m", 1, "p", slo, capacity, evidence=evidence)
        for pool in pools or (CHAT,)
    }
    return Policies(PolicyVersion("", "0"), made, {})
