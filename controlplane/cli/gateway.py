"""`trimtab gateway`: render a gateway's configuration, and look at a running one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from controlplane.adapters.gateways.haproxy import files, members
from controlplane.adapters.gateways.haproxy.gateway import HaproxyGateway
from controlplane.adapters.gateways.haproxy.layout import GatewayLayout
from controlplane.adapters.gateways.haproxy.parse import QUESTIONS, UNLIMITED, ServerRow, Tables, tables
from controlplane.adapters.gateways.haproxy.render import render as render_files
from controlplane.adapters.gateways.haproxy.runtime import Deadline, RuntimeSocket
from controlplane.adapters.orchestrators.twin import TwinOrchestrator
from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.cli.names import Name
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import PoolName
from controlplane.ports import InvalidConfig, PortError
from controlplane.settings import GatewaySettings

_PATH = click.Path(path_type=Path)


class _SystemClock:
    """The machine's clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a gateway's runtime API and the inventory are."""

    name: str
    socket: Path
    inventory: str = ""
    timeout_s: float = 1.5


@click.group()
def command() -> None:
    """Render HAProxy's configuration, and look at a running HAProxy.

    The gateway carries the traffic whether or not the control plane runs: models, limits,
    queue bounds and timeouts are configured into it; only levels are set while it runs.
    """


@command.command()
@click.option("--policies", type=_PATH, default=Path("policies"), show_default=True, help="Policy files.")
@click.option("--profiles", type=_PATH, help="Profiles, instead of the shipped ones.")
@click.option("--fleet", type=_PATH, help="fleet.yaml: names the gateway's socket and the orchestrator.")
@click.option("--gateway", "name", help="Which gateway of fleet.yaml; needed where it names several.")
@click.option("--inventory", help="URL whose /inventory lists the instances, instead of --fleet.")
@click.option("--socket", type=_PATH, help="Path of the runtime API's Unix socket, instead of --fleet.")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="Where callers connect.")
@click.option("--exporter", default="127.0.0.1:8405", show_default=True, help="Where Prometheus scrapes.")
@click.option(
    "--long-pool", type=Name(), help="Pool for bodies too large to be read; without it they get 413."
)
@click.option("--log", help="'stdout', a UDP receiver host:port, or ring@host:port (TCP).")
@click.option("--live", is_flag=True, help="Keep the weights, limits and drains of the running gateway.")
@click.option("--out", type=_PATH, required=True, help="Directory for haproxy.cfg and its two companions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a sentence.")
def render(  # noqa: PLR0913  # one parameter an option
    *,
    policies: Path,
    profiles: Path | None,
    fleet: Path | None,
    name: str | None,
    inventory: str | None,
    socket: Path | None,
    listen: str,
    exporter: str,
    long_pool: str | None,
    log: str | None,
    out: Path,
    live: bool,
    as_json: bool,
) -> None:
    """Render haproxy.cfg, models.map and models.json from policies and the inventory.

    Files are replaced at once each, so a restart at any moment reads whole ones. Check
    and start them with HAProxy itself:

    \b
    Example:
      trimtab gateway render --fleet fleet.yaml --policies policies --out var/gateway
      haproxy -c -f var/gateway/haproxy.cfg
      haproxy -W -f var/gateway/haproxy.cfg
    """
    place = _place(fleet, name, socket, inventory)
    if not place.inventory:
        raise click.UsageError("name the inventory: --inventory URL, or an orchestrator in --fleet")
    try:
        found = TwinOrchestrator(place.inventory, place.timeout_s).inventory()
        pools = members.pool_layouts(PolicyDirectory(policies, profiles).load(), found)
        layout = GatewayLayout(
            listen,
            exporter,
            place.socket.absolute(),
            pools,
            long_pool=PoolName(long_pool) if long_pool else None,
            log=log,
        )
        layout = _as_it_runs(layout, place, found) if live else layout
        written = files.write(render_files(layout), out)
    except PortError as error:
        raise _failure(error) from error
    _say_rendered(layout, written, as_json=as_json)


@command.command()
@click.option("--fleet", type=_PATH, help="fleet.yaml: names the gateway's socket.")
@click.option("--gateway", "name", help="Which gateway of fleet.yaml; needed where it names several.")
@click.option("--socket", type=_PATH, help="Path of the runtime API's Unix socket, instead of --fleet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def show(fleet: Path | None, name: str | None, socket: Path | None, *, as_json: bool) -> None:
    """Show every server of a running gateway: state, weight, limit, in flight, queue.

    Servers are shown as the gateway knows them, strangers included.

    \b
    Example:
      trimtab gateway show --socket var/gateway/admin.sock
    """
    place = _place(fleet, name, socket, None)
    try:
        found = tables(*RuntimeSocket(place.socket).ask(QUESTIONS, Deadline(place.timeout_s)))
    except PortError as error:
        raise _failure(error) from error
    if as_json:
        click.echo(json.dumps(_as_data(place.name, found), indent=2))
    else:
        Console().print(_table(place.name, found))


def _place(fleet: Path | None, name: str | None, socket: Path | None, inventory: str | None) -> _Place:
    """Where to look, from fleet.yaml with single options on top."""
    if fleet is None:
        if socket is None:
            raise click.UsageError("name the gateway: --socket PATH, or --fleet fleet.yaml")
        return _Place(name or socket.stem, socket, inventory or "")
    try:
        settings = load_fleet(fleet)
    except InvalidConfig as error:
        raise _failure(error) from error
    gateway = _one(settings.gateways, name)
    return _Place(
        gateway.name,
        socket or gateway.socket,
        inventory or settings.orchestrator.url,
        gateway.timeout_s,
    )


def _one(gateways: Iterable[GatewaySettings], name: str | None) -> GatewaySettings:
    by_name = {gateway.name: gateway for gateway in gateways}
    if name is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    if name not in by_name:
        raise click.UsageError(f"--gateway {name or ''}: fleet.yaml names {', '.join(by_name) or 'none'}")
    return by_name[name]


def _as_it_runs(layout: GatewayLayout, place: _Place, inventory: Inventory) -> GatewayLayout:
    gateway = HaproxyGateway(
        place.name,
        RuntimeSocket(place.socket),
        lambda: inventory.instances,
        _SystemClock(),
        place.timeout_s,
    )
    return members.with_levels(layout, gateway.read())


def _failure(error: PortError) -> click.ClickException:
    return click.ClickException(str(error))


def _say_rendered(layout: GatewayLayout, written: Path, *, as_json: bool) -> None:
    servers = {pool.pool: len(pool.servers) for pool in layout.pools}
    if as_json:
        click.echo(json.dumps({"config": str(written), "servers": servers}, indent=2))
        return
    told = ", ".join(f"{pool} {count}" for pool, count in servers.items())
    click.echo(f"{written}: servers by pool: {told}")


def _as_data(name: str, found: Tables) -> Mapping[str, object]:
    return {
        "gateway": name,
        "pid": found.process.pid,
        "uptime_s": found.process.uptime_s,
        "pools": [
            {"pool": row.pool, "queue": row.queue, "arrivals": row.arrivals_total} for row in found.backends
        ],
        "servers": [
            {
                "pool": one.pool,
                "server": one.name,
                "address": one.address,
                "state": _state(one),
                "weight": one.weight,
                "limit": None if one.limit == UNLIMITED else one.limit,
                "in_flight": one.in_flight,
                "queue": one.queue,
                "completed": max(0, one.sessions_total - one.in_flight),
            }
            for one in found.servers.values()
        ],
    }


def _table(name: str, found: Tables) -> Table:
    waiting = ", ".join(f"{row.pool} {row.queue}" for row in found.backends)
    table = Table(title=f"{name}, up {found.process.uptime_s} s; waiting: {waiting}")
    for column in ("pool", "server", "state"):
        table.add_column(column)
    for column in ("weight", "limit", "in flight", "queue"):
        table.add_column(column, justify="right")
    for one in found.servers.values():
        limit = "none" if one.limit == UNLIMITED else str(one.limit)
        table.add_row(
            one.pool, one.name, _state(one), str(one.weight), limit, str(one.in_flight), str(one.queue)
        )
    return table


def _state(server: ServerRow) -> str:
    if server.closed:
        return "closed"
    return "down" if server.down else "open"
