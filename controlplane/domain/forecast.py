"""What is expected of the near future. The first issue's forecast: none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.ids import PoolName


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """Offered load of a pool `horizon_s` ahead, in instances, at `quantile` (0..1)."""

    horizon_s: float
    quantile: float
    load_instances: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecasts by pool; a pool that is absent has none, and its present load stands in."""

    made_at: float
    pools: Mapping[PoolName, PoolForecast] = field(default_factory=dict)
