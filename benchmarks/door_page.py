"""What a scrape of the gateway exporter costs: its own page against the library's, in one run.

.venv/bin/python benchmarks/door_page.py
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.openmetrics.exposition import generate_latest

from controlplane.adapters.engines.door import EDGES_S
from controlplane.door.series import Histograms

BY = ("pool", "slot", "class", "status")
LABELS = [
    ("chat-8b", f"chat-8b-{slot:02}", "default", status)
    for slot in range(24)
    for status in ("200", "400", "503", "none")
]


def seconds(once: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """The least of twenty runs, `before` each one unmeasured."""
    found = []
    for _ in range(20):
        before()
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    """Print the ratios."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    theirs = Histogram("door_seconds", "Seconds.", BY, buckets=EDGES_S, registry=registry)
    ours = Histograms("door_seconds", "Seconds.", BY, EDGES_S)

    def observe() -> None:
        for labels in LABELS:
            theirs.labels(*labels).observe(1.0)
            ours.observe(labels, 1.0)

    observe()
    library = seconds(lambda: generate_latest(registry))
    packed = seconds(lambda: gzip.compress(generate_latest(registry)))
    changed, same = seconds(lambda: ours.page().encode(), observe), seconds(lambda: ours.page().encode())
    print(
        f"{len(LABELS)} label sets, {len(ours.page())} bytes; the library's page: {1000 * library:.1f} ms = 1"
    )
    print(f"the library's page, packed: {packed / library:.2f}")
    print(f"ours, every series changed: {changed / library:.3f}")
    print(f"ours, no series changed: {same / library:.4f}")


if __name__ == "__main__":
    main()
