"""`trimtab run`: the control loop."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.ports import InvalidConfig, PortError
from controlplane.wiring import Options, controller


@click.command()
@click.option(
    "--fleet",
    type=click.Path(path_type=Path),
    default=Path("fleet.yaml"),
    show_default=True,
    help="Where things are.",
)
@click.option(
    "--policies",
    type=click.Path(path_type=Path),
    default=Path("policies"),
    show_default=True,
    help="One file a pool.",
)
@click.option(
    "--profiles",
    type=click.Path(path_type=Path),
    default=None,
    help="Profiles; without it those that ship with the product.",
)
@click.option("--observe-only", is_flag=True, help="Record what would be done, and do nothing.")
@click.option("--inline", is_flag=True, help="Read raw series: for a Prometheus without our recording rules.")
@click.option("--demo", "demo", is_flag=True, hidden=True, help="Mark the record as a demonstration's.")
def command(  # noqa: PLR0913  # one parameter an option
    fleet: Path, policies: Path, profiles: Path | None, *, observe_only: bool, inline: bool, demo: bool
) -> None:
    """Run the loop until SIGTERM: weights every few seconds, capacity every 15 to 30.

    Every decision is in the record before anything is touched. When this process ends, the
    gateways keep their last weights and traffic goes on.

    \b
    Example:
      trimtab run --fleet fleet.yaml --policies policies --observe-only
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    options = Options(policies, profiles, observe_only, inline, "demo" if demo else "live")
    stop = threading.Event()
    _stop_on_signals(stop)  # before anything is opened: a start that is called off ends cleanly too
    try:
        with controller(load_fleet(fleet), options, stop) as running:
            click.echo(json.dumps({"metrics": running.endpoint.port}))
            running.run()
    except InvalidConfig as error:
        raise click.ClickException(str(error)) from error
    except PortError as error:
        raise click.ClickException(str(error)) from error


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
