"""The page is what `prometheus_client` would write, to the byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    enable_created_metrics,
    generate_latest,
)

from controlplane.door.series import Counts, Histograms

EDGES = (0.01, 0.5, 2.0, 600.0)
BY = ("pool", "slot", "class")


@pytest.fixture(scope="module", autouse=True)
def without_created() -> Iterator[None]:
    """A second series for each one, which we do not write."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    yield
    enable_created_metrics()  # type: ignore[no-untyped-call]


names = st.sampled_from(["a", "b", 'q"', "back\\slash", "break\n", "\u00fc", ""])
values = st.floats(0.0, 1e9) | st.sampled_from(EDGES)
seen = st.lists(st.tuples(names, names, names, values), max_size=40)


@given(seen)
def test_histograms_are_written_as_the_library_writes_them_however_often_one_looks(
    rows: list[tuple[str, str, str, float]],
) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("door_seconds", "Seconds.", BY, buckets=EDGES, registry=registry)
    ours = Histograms("door_seconds", "Seconds.", BY, EDGES)
    for *labels, value in rows:
        theirs.labels(*labels).observe(value)
        ours.observe(tuple(map(str, labels)), value)
        assert ours.page() == generate_latest(registry).decode()
    assert ours.page() == generate_latest(registry).decode()


@given(seen)
def test_counts_are_written_as_the_library_writes_them(rows: list[tuple[str, str, str, float]]) -> None:
    registry = CollectorRegistry()
    theirs, plain = (
        Counter("door", "Doors.", BY, registry=registry),
        Counter("all", "All.", registry=registry),
    )
    ours, ours_plain = Counts("door", "Doors.", BY), Counts("all", "All.")
    for *labels, _ in rows:
        theirs.labels(*labels).inc()
        plain.inc()
        ours.inc(*map(str, labels))
        ours_plain.inc()
        assert ours.page() + ours_plain.page() == generate_latest(registry).decode()
    assert ours.page() + ours_plain.page() == generate_latest(registry).decode()
