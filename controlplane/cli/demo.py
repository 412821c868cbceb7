"""`trimtab demo`: the whole loop on this machine, with no GPU and no cluster."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from controlplane.cli.numbers import Range
from controlplane.demo.processes import DemoError
from controlplane.demo.run import Watcher, perform, run_folder
from controlplane.demo.stage import Wish
from controlplane.demo.timeline import LONGEST_S, SHORTEST_S
from controlplane.demo.watch import Lines, Picture, Sketch
from controlplane.demo.write import conclude, introduction, writable
from controlplane.ports import PortError
from controlplane.twin.live.fleet import FLEETS

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--for",
    "for_s",
    type=Range(SHORTEST_S, LONGEST_S),
    help="Seconds from the first request on. Without it: the story takes 7 minutes, then it runs on.",
)
@click.option("--trace", type=FILE, help="Trace that drives chat-8b. Without it: seeded chat traffic.")
@click.option("--fleet", type=click.Choice(sorted(FLEETS)), default="small", show_default=True)
@click.option(
    "--report", type=FILE, help="Write a JSON report, and keep the record beside it as .db, a new file."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all chance.")
@click.option("--no-view", is_flag=True, help="Plain lines, also on a terminal.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all files and logs here."
)
@click.option("--picture", type=FILE, help="Save a view of the throttled card as an SVG drawing.")
def command(  # noqa: PLR0913  # one parameter an option
    *,
    for_s: float | None,
    trace: Path | None,
    fleet: str,
    report: Path | None,
    seed: int,
    no_view: bool,
    keep: Path | None,
    picture: Path | None,
) -> None:
    """Watch a fleet being steered: real Prometheus, real HAProxy, real streamed requests.

    A throttled card is found and weighted down. A crowd comes, and is answered within seconds by
    sleepers in the buffer, on GPUs that did offline work until then; it pages once, and what was lent
    goes back without a cut stream. Then Prometheus fails in four ways, and nothing shrinks. Everything
    runs on loopback, and is ended by its own pid. Ctrl-C ends it at any moment.

    \b
    Examples:
      trimtab demo
      trimtab demo --for 420 --report demo.json
      trimtab demo --trace azure2023_conv.parquet --for 420 --report demo.json
    """
    stop = _stopped_by_signals()
    wish = Wish(fleet, for_s, trace, seed, report.with_suffix(".db") if report else None)
    try:
        if report is not None:
            writable(report)
        with run_folder(keep) as folder, ExitStack() as stack:
            watcher = _watcher(stack, picture, live=not no_view)
            watcher.say(introduction(wish, folder, kept=keep is not None))
            played = perform(wish, folder, watcher, stop)
            watcher.say(conclude(played, report))
    except (DemoError, PortError) as error:
        raise click.ClickException(str(error)) from error
    if played.processes_left:
        raise click.ClickException(f"{played.processes_left} processes are left")


def _watcher(stack: ExitStack, drawing: Path | None, *, live: bool) -> Watcher:
    console = Console()
    shows = live and console.is_terminal
    watcher: Watcher = stack.enter_context(Picture(console)) if shows else Lines(click.echo)
    return watcher if drawing is None else Sketch(watcher, drawing)


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a closed terminal leaves nothing either
        signal.signal(number, handle)
    return stop
