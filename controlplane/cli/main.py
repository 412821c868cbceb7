"""`trimtab`: the group that finds each command in its own file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

import click

from controlplane import __version__

COMMANDS: Mapping[str, str] = {
    "run": "controlplane.cli.run",
    "demo": "controlplane.cli.demo",
    "decisions": "controlplane.cli.decisions",
    "explain": "controlplane.cli.explain",
    "replay": "controlplane.cli.replay",
    "hold": "controlplane.cli.hold",
    "loans": "controlplane.cli.loans",
    "pages": "controlplane.cli.pages",
    "policy": "controlplane.cli.policy",
    "twin": "controlplane.cli.twin",
    "traffic": "controlplane.cli.traffic",
    "rules": "controlplane.cli.rules",
    "gateway": "controlplane.cli.gateway",
    "gateway-exporter": "controlplane.cli.gateway_exporter",
    "db": "controlplane.cli.db",
}
"""Command name to the module that defines it, as a click command called `command`."""


class LazyGroup(click.Group):
    """Imports a command's module when it is used: `trimtab --help` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None for a name that does not exist."""
        if cmd_name not in COMMANDS:
            return None
        return cast("click.Command", importlib.import_module(COMMANDS[cmd_name]).command)


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="trimtab")
def main() -> None:
    """Observe, decide, record, act: an autoscaling control plane for LLM inference fleets.

    Start with `trimtab demo`: the whole loop on this machine, with no GPU and no cluster.
    """
