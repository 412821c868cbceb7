"""What exporters say, translated into one vocabulary (`domain.readings`).

To add a dialect: write `<name>.py` with a tuple `TEMPLATES` (one `Template` per signal it can
say, and its own `ENGINE_AGE`, `SHORT_HISTORY` and `FALSE_RESETS`), add it to `DIALECTS` below, and
put a captured scrape and its tests under `tests/adapters/engines/`. Templates of one series from
several dialects are joined by `or`. Then render the rules again (`trimtab rules render`).
"""

from __future__ import annotations

from controlplane.adapters.engines import dcgm, door, haproxy_exporter, vllm
from controlplane.adapters.engines.template import Source, Template

DIALECTS = (vllm, dcgm, haproxy_exporter, door)

TEMPLATES: tuple[Template, ...] = tuple(template for dialect in DIALECTS for template in dialect.TEMPLATES)


def families(*sources: Source) -> tuple[str, ...]:
    """The raw families that templates of these sources read (none named: all), sorted.

    The keep list of a scrape job; `up` is not in it, because Prometheus makes that itself.
    """
    chosen = (template for template in TEMPLATES if not sources or template.source in sources)
    return tuple(sorted({family for template in chosen for family in template.families} - {"up"}))
