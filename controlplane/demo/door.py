"""What the gateway exporter saw of a demonstration: its trace, row by row, and its own counts."""

from __future__ import annotations

import csv
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from controlplane.door.line import Outcome

TRACE = "door.csv"
PREFIX = "trimtab_door_"

RETRIED = "offline_retried"

Row = Mapping[str, str]


def counts(port: int, timeout_s: float = 2.0) -> dict[str, float]:
    """Each of the exporter's families, summed over its labels, by its name without prefix. Empty where it
    does not answer."""
    with (
        suppress(OSError, ValueError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=timeout_s) as answer,
    ):
        found: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(answer.read().decode()):
            for each in family.samples:
                found[each.name.removeprefix(PREFIX)] += each.value
        return dict(found)
    return {}


def rows(folder: Path) -> list[Row]:
    """The trace's rows, older files first."""
    files = sorted(folder.glob(f"{TRACE}*"), key=lambda path: path.stat().st_mtime)
    found: list[Row] = []
    for each in files:
        with each.open(encoding="utf-8", newline="") as source:
            found += csv.DictReader(source)
    return found


def figures(
    traced: Sequence[Row], counted: Mapping[str, float], offline: Collection[str] = ()
) -> dict[str, Any]:
    """`door` and `exporter` of the report. A figure that nobody gave is None.

    An attempt at an `offline` pool that found it asleep, or was given up when it fell asleep, is made again
    by its client: it counts as `offline_retried` and as no failure.
    """
    by_outcome = Counter(_became(row, offline) for row in traced)
    done = [row for row in traced if row["outcome"] == Outcome.OK]
    return {
        "door": {
            "p95_s": _p95(row["total_s"] for row in done),
            "ttft_p95_s": _p95(row["ttft_s"] for row in done),
            "wait_p95_s": _p95(row["wait_s"] for row in done),
            **{outcome: by_outcome[outcome] for outcome in (*map(str, Outcome), RETRIED)},
        },
        "exporter": {
            "lines": _whole(counted.get("lines_total")),
            "lost": _whole(counted.get("lost_lines_total")),
            "malformed": _whole(counted.get("malformed_lines_total")),
        },
    }


def _became(row: Row, offline: Collection[str]) -> str:
    again = row["outcome"] in {Outcome.FAILED, Outcome.CUT, Outcome.REFUSED} and row["pool"] in offline
    return RETRIED if again else row["outcome"]


def _p95(texts: Iterable[str]) -> float | None:
    found = [float(text) for text in texts if text]
    return round(float(np.percentile(found, 95)), 6) if found else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
