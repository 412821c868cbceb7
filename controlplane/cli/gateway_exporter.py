"""`trimtab gateway-exporter`: latency as the caller saw it, from a gateway's log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.door.serve import Address, Ports, Wish, serve
from controlplane.ports import PortError

_PATH = click.Path(path_type=Path)
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class _AddressType(click.ParamType[Address]):
    """`host:port`; port 0 takes a free one."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        found = _ADDRESS.fullmatch(str(value))
        if not found or int(found["port"]) > 65_535:
            self.fail(f"{value!r} is no host:port with a port from 0 to 65535", param, ctx)
        return found["host"].strip("[]"), int(found["port"])


@click.command()
@click.option("--socket", type=_PATH, required=True, help="Path of HAProxy's runtime API.")
@click.option(
    "--log", type=_AddressType(), default="127.0.0.1:5140", show_default=True, help="Where lines come in."
)
@click.option(
    "--metrics",
    type=_AddressType(),
    default="127.0.0.1:9405",
    show_default=True,
    help="Where Prometheus scrapes.",
)
@click.option("--policies", type=_PATH, help="Policy files: their latency targets become histogram edges.")
@click.option("--profiles", type=_PATH, help="Profiles, instead of the shipped ones.")
@click.option("--trace", type=_PATH, help="Write a CSV row a request too; at most five files of 64 MiB.")
def command(  # noqa: PLR0913  # one parameter an option
    *,
    socket: Path,
    log: Address,
    metrics: Address,
    policies: Path | None,
    profiles: Path | None,
    trace: Path | None,
) -> None:
    """Turn a HAProxy's log into histograms of what its callers saw: queue wait, first token, total.

    One small process beside each gateway. HAProxy itself exports no histograms, and engines do not see the
    queue before them. Lines come by UDP or, from a ring, by TCP, on one port; queue, in-flight and
    refusals are read from the runtime API beside them. Lines that never came are counted.

    When it listens it prints one line of JSON with both ports. SIGTERM ends it.

    \b
    Example:
      trimtab gateway render --fleet fleet.yaml --log ring@127.0.0.1:5140 --out var/gateway
      trimtab gateway-exporter --socket var/gateway/admin.sock --policies policies
    """
    try:
        targets = () if policies is None else _targets(policies, profiles)
        serve(Wish(log, metrics, socket.absolute(), targets, trace), _say)
    except PortError as error:
        raise click.ClickException(str(error)) from error


def _targets(policies: Path, profiles: Path | None) -> tuple[float, ...]:
    slos = [pool.slo for pool in PolicyDirectory(policies, profiles).load().pools.values()]
    promised = {slo.ttft_p95_s for slo in slos} | {slo.e2e_p95_s for slo in slos}
    return tuple(sorted(each for each in promised if each is not None))


def _say(ports: Ports) -> None:
    click.echo(json.dumps({"log": ports.log, "metrics": ports.metrics}))
