"""`trimtab twin`: a fleet to steer where there is none, and faults on command."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from controlplane.cli.names import Name
from controlplane.cli.numbers import Range
from controlplane.twin.live.faults import DURATION_RANGE_S, HELP, FaultKind
from controlplane.twin.live.fleet import FLEETS, HOST_MEMORY_GIB
from controlplane.twin.live.orchestrator import WHIM_HELP, Whim
from controlplane.twin.live.serve import Settings, announce, serve

KINDS = "\n".join(f"  {kind:<9} {text}" for kind, text in HELP.items())
WHIMS = "\n".join(f"  {kind:<9} {text}" for kind, text in WHIM_HELP.items())


@click.group()
def command() -> None:
    """Play an inference fleet on loopback: streamed completions, vLLM and DCGM metrics, faults.

    \b
    Example:
      trimtab twin serve --fleet small --port 8800
      trimtab twin fault throttle chat-8b-03 --factor 0.4 --port 8800
      trimtab twin orchestrator deaf --for 20 --port 8800
    """


@command.command("serve")
@click.option("--fleet", type=click.Choice(sorted(FLEETS)), default="small", show_default=True)
@click.option(
    "--cluster", type=Name(), default="demo", show_default=True, help="Name of the cluster in every label."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Control port; 0 takes a free one.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the spread of card speeds.")
@click.option(
    "--chunk", type=click.IntRange(1, 64), default=8, show_default=True, help="Tokens in one streamed chunk."
)
@click.option(
    "--cold-start",
    type=Range(0, 3600),
    default=20.0,
    show_default=True,
    help="Seconds until the weights of a new or restarted instance are loaded.",
)
@click.option(
    "--wake",
    type=Range(0, 3600),
    default=None,
    help="Seconds until a sleeping instance is awake (default: 2, of 70B 4).",
)
@click.option(
    "--host-memory",
    type=Range(0),
    default=HOST_MEMORY_GIB,
    show_default=True,
    help="GiB of host memory of a node: the weights of what sleeps there have to fit.",
)
def serve_command(  # noqa: PLR0913  # one parameter an option
    *,
    fleet: str,
    cluster: str,
    host: str,
    port: int,
    seed: int,
    chunk: int,
    cold_start: float,
    wake: float | None,
    host_memory: float,
) -> None:
    """Serve until SIGTERM. Prints one JSON line with the control port when all sockets are up."""
    settings = Settings(fleet, cluster, host, port, seed, chunk, cold_start, wake, host_memory)
    try:
        asyncio.run(serve(settings, announce))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


@command.command("fault", epilog="\b\nKinds:\n" + KINDS)
@click.argument("kind", required=False)
@click.argument("instance", required=False)
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="The twin's control port.")
@click.option(
    "--factor",
    type=Range(0, 1, min_open=True),
    default=None,
    help="Speed that is left, for slow and throttle (default 0.5).",
)
@click.option(
    "--for", "for_s", type=Range(*DURATION_RANGE_S), default=None, help="Seconds until it ends by itself."
)
@click.option("--clear", is_flag=True, help="End the instance's fault (give INSTANCE alone).")
@click.option("--list", "show", is_flag=True, help="Show the faults in force.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fault_command(  # noqa: PLR0913  # one parameter an option
    kind: str | None,
    instance: str | None,
    *,
    port: int,
    factor: float | None,
    for_s: float | None,
    clear: bool,
    show: bool,
    as_json: bool,
) -> None:
    """Break one instance of a running twin: KIND, then INSTANCE (a slot such as chat-8b-03)."""
    if show:
        _print_faults(_call(port, "GET", "/faults"), as_json=as_json)
        return
    if clear and not (instance or kind):
        raise click.UsageError("--clear needs the INSTANCE whose fault is to end.")
    if clear:
        answer = _call(port, "DELETE", f"/faults/{instance or kind}")
    elif kind not in set(FaultKind) or instance is None:
        raise click.UsageError(f"give KIND and INSTANCE. Kinds: {', '.join(FaultKind)}; got {kind!r}.")
    else:
        body = {"kind": kind, "instance": instance, "factor": factor, "for_s": for_s}
        answer = _call(
            port, "POST", "/faults", {key: value for key, value in body.items() if value is not None}
        )
    click.echo(json.dumps(answer) if as_json else " ".join(f"{key}={value}" for key, value in answer.items()))


@command.command("orchestrator", epilog="\b\nKinds:\n" + WHIMS)
@click.argument("kind", required=False, type=click.Choice([str(each) for each in Whim]))
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="The twin's control port.")
@click.option(
    "--for", "for_s", type=Range(0, min_open=True), default=None, help="Seconds until it ends by itself."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def orchestrator_command(kind: str | None, *, port: int, for_s: float | None, as_json: bool) -> None:
    """Break the orchestrator of a running twin: KIND. Without it, show what is wrong with it now."""
    if kind is None:
        answer = _call(port, "GET", "/orchestrator")
    else:
        answer = _call(
            port, "POST", "/orchestrator", {"kind": kind} | ({} if for_s is None else {"for_s": for_s})
        )
    click.echo(json.dumps(answer) if as_json else " ".join(f"{key}={value}" for key, value in answer.items()))


def _print_faults(faults: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(faults))
        return
    table = Table("instance", "kind", "factor", "since", "until")
    for fault in faults:
        table.add_row(
            fault["slot"],
            fault["kind"],
            f"{fault['factor']:g}",
            f"{fault['since']:.0f}",
            str(fault["until"] or "cleared"),
        )
    Console().print(table if faults else "no faults in force")


def _call(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - loopback only
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise click.UsageError(json.load(error)["error"]) from error
    except OSError as error:
        raise click.ClickException(f"no twin answers on port {port}: {error}") from error
