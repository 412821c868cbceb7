"""A scene as a terminal picture. Pure: data in, something that rich can draw out."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controlplane.demo.scene import Apart, Decided, PoolRow, Scene

UNEVEN = 0.30
"""An imbalance above this is worth a colour."""

WIDTH = 118

_OTHER_PLACES = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
"""Rich's drawing asks a far server for its font; the reader's own monospace does as well."""


def picture(scene: Scene) -> RenderableType:
    """The whole view."""
    parts: list[RenderableType] = [_head(scene), _pools(scene.pools)]
    if scene.apart:
        parts.append(_apart(scene.apart))
    parts += [_decided(scene.decided), _foot(scene)]
    return Group(*parts)


def svg(scene: Scene) -> str:
    """The view as an SVG drawing."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(picture(scene))
    return _OTHER_PLACES.sub("", console.export_svg(title="trimtab demo"))


def _head(scene: Scene) -> RenderableType:
    line = Text.assemble((f"{scene.title}", "bold"), "\nlook: ", (scene.look, "cyan"))
    if scene.duration_s is None:
        return Panel(line, title=f"trimtab demo · {scene.elapsed_s:.0f} s", title_align="left")
    bar = ProgressBar(total=scene.duration_s, completed=min(scene.elapsed_s, scene.duration_s))
    title = f"trimtab demo · {scene.elapsed_s:.0f} of {scene.duration_s:.0f} s"
    return Panel(Group(line, bar), title=title, title_align="left")


def _pools(rows: Iterable[PoolRow]) -> RenderableType:
    table = Table(expand=True, title="pools", title_justify="left", title_style="bold")
    table.add_column("pool")
    for column in (
        "instances",
        "GPUs",
        "seen",
        "running",
        "queue",
        "P95 s",
        "TTFT P95 s",
        "seen at",
        "busyness",
        "imbalance\nbusyness",
        "imbalance\nutilisation",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.pool,
            str(row.instances),
            str(row.gpus),
            Text(f"{row.seen:.0%}", style="" if row.seen >= 1.0 else "red"),
            _number(row.running),
            _number(row.queue),
            _number(row.e2e_p95_s),
            _number(row.ttft_p95_s),
            row.watch,
            _number(row.busyness),
            _uneven(row.imbalance_busyness),
            _uneven(row.imbalance_utilisation),
        )
    return table


def _apart(rows: Iterable[Apart]) -> RenderableType:
    table = Table(title="instances that differ from their pool", title_justify="left", title_style="bold")
    table.add_column("instance")
    for column in ("speed", "weight", "limit", "in flight"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row.slot, _number(row.speed), str(row.weight), str(row.limit), str(row.in_flight))
    return table


def _decided(rows: Iterable[Decided]) -> RenderableType:
    lines = Text()
    for row in rows:
        at = dt.datetime.fromtimestamp(row.at, dt.UTC).strftime("%H:%M:%S")
        lines.append(f"{at} ", style="dim").append(row.words + "\n")
    return Panel(lines or Text("none yet"), title="last decisions that changed something", title_align="left")


def _foot(scene: Scene) -> RenderableType:
    lags = ", ".join(
        f"{who} {_number(value)} s"
        for who, value in (("generator", scene.generator_lag_s), ("twin", scene.twin_lag_s))
    )
    moved = " · ".join(
        f"{what}: " + (", ".join(f"{count} {word}" for word, count in counts.items()) or "none")
        for what, counts in (("loans", scene.loans), ("pages", scene.pages))
    )
    return Text(f"requests: {scene.requests or 'none yet'} · lateness P99: {lags}\n{moved}", style="dim")


def _uneven(value: float | None) -> Text:
    return Text(_number(value), style="yellow" if value is not None and value > UNEVEN else "")


def _number(value: float | None) -> str:
    """A dash is not zero: it is not known, or not defined."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
