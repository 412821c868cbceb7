"""Counts and histograms that are cheap to scrape: the text of a series is kept until its value changes.

`prometheus_client` writes every label of every bucket anew at each scrape, which was most of what the
exporter cost. The text here is the same to the byte.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Series:
    """One label set: its labels as they are written, its counts, their sum, and its text once it was written.

    A bucket's label `le` stands after the first `cut` characters, in the order of names.
    """

    labels: str
    cut: int
    counts: list[int]
    sum: float = 0.0
    text: str = ""


class Counts:
    """A counter by labels. Threads may share it."""

    def __init__(self, name: str, text: str, by: Sequence[str] = ()) -> None:
        self._name, self._by = f"{name}_total", by
        self._head = _head(self._name, text, "counter")
        self._lock = threading.Lock()
        self._series: dict[Labels, _Series] = {}
        if not by:
            self._series[()] = self._begin(())

    def inc(self, *labels: str) -> None:
        """One more."""
        with self._lock:
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = self._begin(labels)
            series.counts[0] += 1
            series.text = ""

    def page(self) -> str:
        """The family in the text format of Prometheus."""
        with self._lock:
            return self._head + "".join(each.text or self._write(each) for each in self._series.values())

    def _begin(self, labels: Labels) -> _Series:
        written = "".join(_pairs(self._by, labels))
        return _Series(f"{{{written[:-1]}}}" if written else "", 0, [0])

    def _write(self, series: _Series) -> str:
        series.text = f"{self._name}{series.labels} {_go(series.counts[0])}\n"
        return series.text


class Histograms:
    """A histogram by labels; `edges` ascending, without infinity. Threads may share it."""

    def __init__(self, name: str, text: str, by: Sequence[str], edges: Sequence[float]) -> None:
        self._name, self._by, self._edges = name, by, tuple(edges)
        self._bounds = [_go(edge) for edge in (*self._edges, float("inf"))]
        self._head = _head(name, text, "histogram")
        self._lock = threading.Lock()
        self._series: dict[Labels, _Series] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """One more value."""
        with self._lock:
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = self._begin(labels)
            series.counts[bisect_left(self._edges, value)] += 1
            series.sum += value
            series.text = ""

    def page(self) -> str:
        """The family in the text format of Prometheus."""
        with self._lock:
            return self._head + "".join(each.text or self._write(each) for each in self._series.values())

    def _begin(self, labels: Labels) -> _Series:
        pairs = _pairs(self._by, labels)
        cut = sum(len(pair) for pair in pairs if pair < "le")
        return _Series("".join(pairs), cut, [0] * len(self._bounds))

    def _write(self, series: _Series) -> str:
        name, labels = self._name, series.labels.removesuffix(",")
        start, rest = f"{name}_bucket{{{series.labels[: series.cut]}le=", series.labels[series.cut :]
        end = f",{rest}".removesuffix(",") + "} "
        up_to = [_go(count) for count in accumulate(series.counts)]
        buckets = [f'{start}"{le}"{end}{count}' for le, count in zip(self._bounds, up_to, strict=True)]
        totals = f"{name}_count{{{labels}}} {up_to[-1]}", f"{name}_sum{{{labels}}} {_go(series.sum)}"
        series.text = "\n".join((*buckets, *totals, ""))
        return series.text


def _head(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _pairs(by: Sequence[str], labels: Labels) -> list[str]:
    """Each label with a comma behind it, in the order of names."""
    return [f'{key}="{_escaped(value)}",' for key, value in sorted(zip(by, labels, strict=True))]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _go(number: float) -> str:
    return str(floatToGoString(number))  # type: ignore[no-untyped-call]
