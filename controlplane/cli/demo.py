"""`trimtab demo`: the whole loop on this machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

import click

from controlplane.demo import run
from controlplane.demo.processes import DemoError
from controlplane.demo.stage import Stage, Wish
from controlplane.ports import PortError

PATH = click.Path(path_type=Path)


class Lines:
    def say(self, text: str) -> None:
        click.echo(text)

    def phase(self, stage, actor, mark) -> None:
        click.echo(f"[{mark.phase.from_s:.0f} s] {mark.phase.title}: {mark.phase.look}")

    def tick(self, stage, actor, mark) -> None:
        pass


@click.command()
@click.option("--for", "for_s", type=float)
@click.option("--trace", type=PATH)
@click.option("--fleet", default="small")
@click.option("--report", type=PATH)
@click.option("--seed", type=int, default=1)
@click.option("--no-view", is_flag=True)
@click.option("--keep", type=PATH)
def command(for_s, trace, fleet, report, seed, no_view, keep) -> None:
    stop = threading.Event()
    for n in (signal.SIGINT, signal.SIGTERM):
        signal.signal(n, lambda *_: stop.set())
    wish = Wish(fleet, for_s, trace, seed, report.with_suffix(".db") if report else None)
    try:
        with run.run_folder(keep) as folder:
            played = run.perform(wish, folder, Lines(), stop)
            import json
            print(json.dumps(played.summaries, indent=1)); print(played.truth); print(played.processes_left)
    except (DemoError, PortError) as e:
        raise click.ClickException(str(e)) from e
