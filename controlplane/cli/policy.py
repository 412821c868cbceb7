"""`trimtab policy`: check policy files, and print their schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.adapters.policyfiles.schema import policy_schema
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.domain.policy import Policies
from controlplane.ports import InvalidConfig

_DIRECTORY = click.Path(path_type=Path)

_WIDTH_MIN = 130
"""Columns of the table: a narrower window breaks lines instead of words."""


@click.group()
def command() -> None:
    """Check policy files before they decide anything.

    A policy is one YAML file a pool: what its callers were promised, and how far the
    control plane may go. Policies never name a command, a URL, a file or a secret.
    """


@command.command()
@click.argument("directory", type=_DIRECTORY, default=Path("policies"))
@click.option("--profiles", type=_DIRECTORY, help="Profiles to check against, instead of the shipped ones.")
@click.option("--fleet", type=_DIRECTORY, help="fleet.yaml: windows are checked against its scrape interval.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def check(
    ctx: click.Context, directory: Path, profiles: Path | None, fleet: Path | None, *, as_json: bool
) -> None:
    """Check every policy in DIRECTORY (default: policies), and report all mistakes at once.

    Exit status 0: all good, warnings aside; 1: mistakes.

    \b
    Example:
      trimtab policy check policies --fleet deploy/fleet.example.yaml
    """
    try:
        interval = load_fleet(fleet).prometheus.scrape_interval_s if fleet else None
        policies, warnings = PolicyDirectory(directory, profiles, interval).check()
    except InvalidConfig as error:
        _print_problems(error.problems, as_json=as_json)
        ctx.exit(1)
    _print_policies(policies, warnings, as_json=as_json)


@command.command()
def schema() -> None:
    """Print the JSON Schema of a policy file, for editors.

    \b
    Example, as the first line of a policy:
      # yaml-language-server: $schema=schema.json
    """
    click.echo(policy_schema(), nl=False)


def _print_problems(problems: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"ok": False, "problems": list(problems)}, ensure_ascii=False, indent=2))
        return
    for problem in problems:
        click.echo(problem, err=True)
    click.echo(f"{len(problems)} to mend; nothing was taken over.", err=True)


def _print_policies(policies: Policies, warnings: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_data(policies, warnings), ensure_ascii=False, indent=2))
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    Console(width=max(Console().width, _WIDTH_MIN)).print(_table(policies))
    click.echo(f"{len(policies.pools)} pools, content {policies.version.content_hash[:12]}, no mistakes.")


def _as_data(policies: Policies, warnings: Sequence[str]) -> dict[str, object]:
    pools = [
        {
            "pool": p.pool,
            "model": p.model,
            "profile": p.profile,
            "min": p.capacity.minimum,
            "max": p.capacity.maximum,
        }
        for p in policies.pools.values()
    ]
    version = {"commit": policies.version.commit, "content_hash": policies.version.content_hash}
    return {"ok": True, "version": version, "pools": pools, "warnings": list(warnings)}


def _table(policies: Policies) -> Table:
    table = Table(
        "pool", "model", "profile", "tp", "instances", "TTFT P95", "TPOT P95", "weights", "capacity"
    )
    for p in policies.pools.values():
        instances = f"{p.capacity.minimum}..{p.capacity.maximum}"
        promised = f"{p.slo.ttft_p95_s:g} s", f"{p.slo.tpot_p95_s * 1000:g} ms"
        table.add_row(
            p.pool, p.model, p.profile, str(p.tp), instances, *promised, p.weights_mode, p.capacity_mode
        )
    return table
