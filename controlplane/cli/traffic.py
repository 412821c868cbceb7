"""`trimtab traffic`: real streamed requests, from a trace or from published statistics."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from controlplane.cli.numbers import LONGEST_S, Range
from controlplane.traffic.mix import Entry, MixError, Part, load_mix, parse_mix, prepare, with_seed
from controlplane.traffic.player import Player, Settings
from controlplane.traffic.readers import read_trace, write_trace
from controlplane.traffic.results import Result, ResultWriter
from controlplane.traffic.schedule import merged
from controlplane.traffic.seeded import SHAPES, seeded_trace
from controlplane.traffic.statistics import DAY_BARS, describe, drawn_day, sparkline
from controlplane.traffic.summary import counts, errors, latency, quantiles
from controlplane.traffic.trace import MAX_ARRIVAL_S, TraceError

FILE = click.Path(path_type=Path)
SECONDS = Range(1, LONGEST_S)
ABOVE_ZERO = Range(min=0, min_open=True)


@click.group(name="traffic")
def command() -> None:
    """Play traces as real streamed requests, look into them, make them.

    \b
    Example, in front of a gateway on port 8080:
      trimtab traffic play --url http://127.0.0.1:8080 --model llama-3.1-8b --for 60
    """


@command.command()
@click.option("--url", required=True, help="The gateway, as http://host:port.")
@click.option("--model", help="Served model name that the requests ask for.")
@click.option("--trace", type=FILE, help="Trace to play: .parquet, .csv or .jsonl. Without it: a seeded one.")
@click.option("--shape", type=click.Choice(list(SHAPES)), help="Kind of seeded trace.  [default: chat]")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the seeded trace (in a mix: of each that names none), of retries and of request ids."
    "  [default: 0]",
)
@click.option("--rate", type=ABOVE_ZERO, help="Mean requests/s of the seeded trace.  [default: the shape's]")
@click.option(
    "--steady", is_flag=True, default=None, help="Keep that rate from the first second on: a crowd at once."
)
@click.option(
    "--from",
    "from_",
    type=click.IntRange(min=0),
    help="Second of the trace to start at. Without it: around its busiest minute.",
)
@click.option("--copies", type=ABOVE_ZERO, help="Shifted copies of the trace to lay over each other.")
@click.option("--peak-rate", type=ABOVE_ZERO, help="Instead of --copies: as many as peak at this rate, 1/s.")
@click.option(
    "--max-context", type=int, help="Cut prompts so that prompt + output fit; the cuts are counted."
)
@click.option(
    "--jitter",
    type=Range(0, LONGEST_S),
    help="Seconds: move arrivals by uniform(0, N), where clocks are coarse.",
)
@click.option(
    "--mix",
    type=FILE,
    help="JSON list of models with their traffic, instead of --model to --jitter (but --seed).",
)
@click.option("--for", "for_s", type=SECONDS, default=60.0, show_default=True, help="Seconds to send for.")
@click.option(
    "--grace",
    type=Range(0, LONGEST_S),
    default=30.0,
    show_default=True,
    help="Seconds that open requests get after that.",
)
@click.option(
    "--timeout", type=SECONDS, default=900.0, show_default=True, help="Seconds that one attempt may take."
)
@click.option("--results", type=FILE, help="File for one JSON line a request, as each ends. It is replaced.")
def play(url: str, mix: Path | None, for_s: float, **options: Any) -> None:
    """Send a trace's requests to a gateway, each at its time, and sum up their answers as JSON.

    Open loop: no request waits for another's answer. Load is scaled by laying shifted copies of the
    trace over each other; its lengths and its bursts stay real. A trace with one bad row plays nothing.

    \b
    Examples:
      trimtab traffic play --url http://127.0.0.1:8080 --model llama-3.1-8b \\
          --trace azure2023_conv.parquet --for 300 --peak-rate 20 --results results.jsonl
      trimtab traffic play --url http://127.0.0.1:8080 --mix mix.json --for 300
      trimtab traffic play --url http://127.0.0.1:8080 --model llama-3.1-8b \\
          --rate 30 --steady --seed 9 --for 60
    """
    times = (for_s, options.pop("grace"), options.pop("timeout"))
    settings = Settings(_gateway(url), *times, options["seed"] or 0)
    results = options.pop("results")
    given = {name: value for name, value in options.items() if value is not None}
    with _explained():
        parts = prepare(_entries(mix, given), for_s)
        click.echo(json.dumps(_play(settings, parts, results), indent=2))


@command.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="The same figures as JSON.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what a trace looks like: rates, burstiness, lengths, and its course over time.

    \b
    Example:
      trimtab traffic inspect azure2023_conv.parquet
    """
    with _explained():
        trace = read_trace(file)
    description = describe(trace)
    if as_json:
        click.echo(json.dumps(description, indent=2))
        return
    table = Table("figure", "value", title=str(file))
    for name, value in description.items():
        table.add_row(name, _cell(value))
    Console().print(table)
    click.echo(sparkline(trace))


@command.command()
@click.argument("file", type=FILE)
@click.option("--shape", type=click.Choice(list(SHAPES)), default="chat", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--for",
    "for_s",
    type=Range(1, MAX_ARRIVAL_S),
    default=600.0,
    show_default=True,
    help="Seconds the trace lasts.",
)
@click.option("--rate", type=ABOVE_ZERO, help="Mean requests/s, instead of the shape's own.")
def make(file: Path, shape: str, seed: int, for_s: float, rate: float | None) -> None:
    """Write a seeded trace, drawn from published statistics, to FILE (.parquet, .csv or .jsonl).

    The same options give the same trace. What each shape is drawn from stands in docs/traffic.md.

    \b
    Example:
      trimtab traffic make chat.parquet --seed 7 --for 900
    """
    with _explained():
        trace = seeded_trace(SHAPES[shape], for_s, seed, rate)
        write_trace(trace, file)
    click.echo(f"{file}: {len(trace)} requests over {trace.period_s} s", err=True)


@command.command()
@click.argument("file", type=FILE)
@click.option("--batch", type=FILE, help="Write the day's batch work too, on and off, to this file.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--for",
    "for_s",
    type=Range(min=DAY_BARS),
    default=86_400.0,
    show_default=True,
    help="Seconds the day lasts.",
)
@click.option("--rate", type=ABOVE_ZERO, help="Mean requests/s of each file, instead of the shapes' own.")
@click.option("--json", "as_json", is_flag=True, help="Figures as JSON instead of the drawing.")
def day(  # noqa: PLR0913  # one parameter an option
    *, file: Path, batch: Path | None, seed: int, for_s: float, rate: float | None, as_json: bool
) -> None:
    """Write the built-in day to FILE (.parquet, .csv or .jsonl), and draw it.

    Night to noon 20 times, a flash crowd at 18:00 that rises within 20 minutes (ServeGen, arXiv 2505.09999;
    Azure code, May 2024), lengths of Azure's conversations (2023); batch work on and off (ServeGen). What is
    assumed stands in docs/traffic.md. Played in ten minutes it is the same curve, 144 times sooner.

    \b
    Example:
      trimtab traffic day day.parquet --batch batch.parquet --seed 7 --for 600 --rate 20
    """
    if file == batch:
        raise click.UsageError(f"FILE and --batch are both {file}; allowed: two files")
    files = {"day": file} | ({} if batch is None else {"batch": batch})
    with _explained():
        traces = {shape: seeded_trace(SHAPES[shape], for_s, seed, rate) for shape in files}
        for shape, trace in traces.items():
            write_trace(trace, files[shape])
    if as_json:
        click.echo(json.dumps({shape: describe(trace) for shape, trace in traces.items()}, indent=2))
    else:
        click.echo(drawn_day(traces))


def _gateway(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise click.BadParameter(f"{url!r}; allowed: http://host:port, without a path", param_hint="--url")
    return url.rstrip("/")


_KEYS = {
    "model": "model",
    "trace": "trace",
    "from_": "from",
    "copies": "copies",
    "max_context": "max_context",
    "jitter": "jitter_s",
}
"""Options that stand in a mix's entry as they are."""


def _entries(mix: Path | None, given: dict[str, Any]) -> list[Entry]:
    """What to play: a mix, or the options `given` in its place. A seed goes with both."""
    if mix is None:
        if "model" not in given:
            raise click.UsageError("neither --model nor --mix; allowed: one of them")
        return parse_mix(_entry(given), "options")
    if other := next((name for name in given if name != "seed"), None):
        raise click.UsageError(f"--mix and --{other.strip('_').replace('_', '-')}; allowed: one of them")
    return with_seed(load_mix(mix), given.get("seed", 0))


def _entry(given: dict[str, Any]) -> str:
    """The options as a mix of one entry, so that both are checked by one form."""
    entry: dict[str, Any] = {key: given[option] for option, key in _KEYS.items() if option in given}
    if seeded := {name: given[name] for name in ("shape", "seed", "rate", "steady") if name in given}:
        entry["seeded"] = seeded
    if "peak_rate" in given:
        entry["peak"] = {"capacity": given["peak_rate"], "share": 1.0}
    return json.dumps([entry], default=str)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what is wrong with the input or the results file into a message and exit code 1."""
    try:
        yield
    except (TraceError, MixError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'results'}: {error.strerror or error}") from error


def _play(settings: Settings, parts: list[Part], path: Path | None) -> dict[str, Any]:
    """Play it and sum it up. Raises OSError where the results cannot be written."""
    schedule = merged([(part.model, part.played.trace) for part in parts], [part.client for part in parts])
    results: list[Result] = []
    with _written(path) as write, _shown(len(schedule)) as show:
        player = Player(settings, schedule, lambda result: _each(result, results.append, write, show))
        began = time.process_time()
        try:
            asyncio.run(_until_signal(player))
        except* OSError as group:
            raise group.exceptions[0] from group
        cpu_s = time.process_time() - began
    return _summary(player, parts, results, cpu_s)


def _each(result: Result, *sinks: Callable[[Result], None]) -> None:
    for sink in sinks:
        sink(result)


async def _until_signal(player: Player) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, player.stop)
    await player.play()


def _summary(player: Player, parts: list[Part], results: list[Result], cpu_s: float) -> dict[str, Any]:
    return {
        "requests": counts(results),
        "latency": latency(results),
        "lag_p99_s": quantiles(result.lateness_s for result in results)["p99"],
        "loop_lag_p99_s": quantiles(player.lags_s)["p99"],
        "errors": errors(results),
        "started_at": player.started_at,
        "stopped": player.stopped,
        "cpu_s": round(cpu_s, 3),
        "reads": player.reads,
        "traffic": [part.report() for part in parts],
    }


@contextmanager
def _written(path: Path | None) -> Iterator[Callable[[Result], None]]:
    if path is None:
        yield lambda _: None
        return
    with path.open("w", encoding="utf-8") as file:
        yield ResultWriter(file)


@contextmanager
def _shown(total: int, stream: TextIO | None = None) -> Iterator[Callable[[Result], None]]:
    """A progress bar on stderr where that is a terminal; silence where it is not."""
    console = Console(file=stream or sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    progress = Progress(
        *columns, TimeElapsedColumn(), console=console, refresh_per_second=2, disable=not console.is_terminal
    )
    with progress:
        task = progress.add_task("answers", total=total)
        yield lambda _: progress.advance(task)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(part)}" for name, part in value.items())
    if value is None:
        return "not defined"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
