"""What exporters say, translated into one vocabulary (`domain.readings`).

To add a dialect: write `<name>.py` with a tuple `TEMPLATES` (one `Template` per signal it can
say, and its own `ENGINE_AGE`, `SHORT_HISTORY` and `FALSE_RESETS`), add it to `DIALECTS` below, and
put a captured scrape and its tests under `tests/adapters/engines/`. Templates of one series from
several dialects are joined by `or`. Then render the rules again (`trimtab rules render`).
"""

from __future__ import annotations

from controlplane.adapters.engines import dcgm, haproxy_exporter, vllm
from controlplane.adapters.engines.template import Template

DIALECTS = (vllm, dcgm, haproxy_exporter)

TEMPLATES: tuple[Template, ...] = tuple(template for dialect in DIALECTS for template in dialect.TEMPLATES)


def families() -> tuple[str, ...]:
    """Every raw family that some template reads, sorted: the keep list of a Prometheus configuration."""
    return tuple(sorted({family for template in TEMPLATES for family in template.families} - {"up"}))
