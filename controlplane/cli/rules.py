"""`trimtab rules`: what a Prometheus needs to speak our vocabulary (recording rules, what to scrape), and
what an Alertmanager needs to page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from controlplane.adapters.alertmanager.config import PagingPlan, alertmanager_config
from controlplane.adapters.engines.compare import compare
from controlplane.adapters.engines.rules import recording_rules, recording_text
from controlplane.adapters.engines.template import Rendering
from controlplane.adapters.policyfiles.leaves import URL, seconds, shown
from controlplane.adapters.prometheus.config import ScrapePlan, prometheus_config
from controlplane.cli.names import Name
from controlplane.ports import InvalidConfig

FILE_NAME = "recording.yaml"
_NAMED = re.compile(r"(?P<name>[^=]{1,64})=(?P<address>[A-Za-z0-9.\[\]:-]+:(?P<port>[0-9]{1,5}))")


def _seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:  # noqa: ARG001
    """Seconds, written with their unit as in policy files: `1500ms`, `15s`, `5m`."""
    try:
        return seconds(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no duration; allowed: a number with ms, s, m, h or d, like 15s"
        ) from None


def _url(ctx: click.Context, param: click.Parameter, text: str) -> str:  # noqa: ARG001
    """An address without a secret in it, as in fleet.yaml."""
    try:
        return str(URL.read(text))
    except ValueError as error:
        said = f" ({error})" if str(error) else ""
        raise click.BadParameter(f"{shown(text)}{said}, allowed: {URL.allowed}") from None


@click.group()
def command() -> None:
    """Recording rules: every engine's dialect translated into one set of series.

    The loop, dashboards and alerts all read these series and no raw ones. Beside them: what
    Prometheus is to scrape, and how Alertmanager is to page.
    """


@command.command()
@click.option(
    "--window", callback=_seconds, default="5m", show_default=True, help="Span of rates, quantiles."
)
@click.option("--interval", callback=_seconds, default="15s", show_default=True, help="Scrape interval.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write recording.yaml there.")
@click.option("--json", "as_json", is_flag=True, help="Print the same rules as JSON.")
def render(window: float, interval: float, out: Path | None, *, as_json: bool) -> None:
    """Write the rules for one window and one scrape interval.

    A window of fewer than four scrapes is refused: such a rate says more about the scrapes
    than about the engine.

    \b
    Example:
      trimtab rules render --window 1m --interval 5s --out /etc/prometheus/rules
    """
    rendering = _rendering(window, interval)
    if as_json:
        click.echo(json.dumps(recording_rules(rendering), indent=2))
    elif out is None:
        click.echo(recording_text(rendering), nl=False)
    else:
        out.mkdir(parents=True, exist_ok=True)
        (out / FILE_NAME).write_text(recording_text(rendering), encoding="utf-8")
        click.echo(f"wrote {out / FILE_NAME}")


class _Named(click.ParamType[tuple[str, str]]):
    """`NAME=HOST:PORT`."""

    name = "name=host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        found = _NAMED.fullmatch(value) if isinstance(value, str) else None
        if found is None or not 1 <= int(found["port"]) <= 65_535:
            self.fail(f"{value!r} is no NAME=HOST:PORT with a port from 1 to 65535", param, ctx)
        return found["name"], found["address"]


@command.command()
@click.option("--cluster", type=Name(), required=True, help="The cluster's name, as in fleet.yaml.")
@click.option(
    "--engines", required=True, help="Where engines are listed: a file (file_sd) or an http:// URL."
)
@click.option("--gpus", required=True, help="Where GPU exporters are listed: a file or an http:// URL.")
@click.option("--gateway", "gateways", type=_Named(), multiple=True, help="HAProxy's own exporter.")
@click.option("--door", "doors", type=_Named(), multiple=True, help="`trimtab gateway-exporter` beside it.")
@click.option("--trimtab", default="", help="HOST:PORT of the controller's own metrics.")
@click.option("--alertmanager", default="", help="HOST:PORT of the Alertmanager that is told of alerts.")
@click.option("--rule-file", "rule_files", multiple=True, help="A rule file to load, as Prometheus finds it.")
@click.option("--interval", callback=_seconds, default="15s", show_default=True, help="Scrape interval.")
def scrape(  # noqa: PLR0913  # one parameter an option
    *,
    cluster: str,
    engines: str,
    gpus: str,
    gateways: tuple[tuple[str, str], ...],
    doors: tuple[tuple[str, str], ...],
    trimtab: str,
    alertmanager: str,
    rule_files: tuple[str, ...],
    interval: float,
) -> None:
    """Print a prometheus.yml for a fleet: jobs, labels, and of each target only what is read.

    Target lists carry the labels `cluster, pool, instance_id, node, pod, namespace` (engines) and
    `cluster, node` (GPUs). docs/prometheus.md says what each is for.

    \b
    Example:
      trimtab rules scrape --cluster demo --engines engines.json --gpus gpus.json \\
          --gateway door-1=127.0.0.1:8405 --door door-1=127.0.0.1:9405 \\
          --trimtab 127.0.0.1:9750 --rule-file recording.yaml > prometheus.yml
    """
    if strangers := sorted({name for name, _ in doors} - {name for name, _ in gateways}):
        raise click.UsageError(f"--door {strangers[0]}: no --gateway has this name")
    plan = ScrapePlan(
        cluster, engines, gpus, dict(gateways), interval, rule_files, trimtab, dict(doors), alertmanager
    )
    click.echo(prometheus_config(plan), nl=False)


@command.command()
@click.option("--webhook", required=True, callback=_url, help="The controller's http://HOST:PORT/alerts.")
@click.option(
    "--token-file",
    required=True,
    help="File with the bearer token, as Alertmanager finds it: a relative path counts from its own file.",
)
@click.option(
    "--group-wait", callback=_seconds, default="10s", show_default=True, help="Wait of a group's first page."
)
@click.option(
    "--group-interval", callback=_seconds, default="1m", show_default=True, help="Between news of a group."
)
@click.option(
    "--repeat-interval", callback=_seconds, default="4h", show_default=True, help="Until told again."
)
def alertmanager(
    *, webhook: str, token_file: str, group_wait: float, group_interval: float, repeat_interval: float
) -> None:
    """Print an alertmanager.yml that sends every alert to the controller, which keeps it on record.

    One group a cluster, pool and alert; a warning keeps silent while the page of the same trouble
    stands. The controller reads the same token: `webhook: {token_file: PATH}` in fleet.yaml.
    Somebody's own pager goes beside the webhook, into the same receiver.

    \b
    Example:
      trimtab rules alertmanager --webhook http://127.0.0.1:9750/alerts \\
          --token-file /run/secrets/alerts-token > alertmanager.yml
      amtool check-config alertmanager.yml
    """
    try:
        plan = PagingPlan(webhook, token_file, group_wait, group_interval, repeat_interval)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(alertmanager_config(plan), nl=False)


@command.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def check(ctx: click.Context, file: Path, *, as_json: bool) -> None:
    """Compare a rule FILE with what this version renders for the same window and interval.

    Exit status 0: the same; 1: not, with every rule that is missing, different or unknown.

    \b
    Example:
      trimtab rules check /etc/prometheus/rules/recording.yaml
    """
    try:
        problems = compare(file)
    except InvalidConfig as error:
        problems = error.problems
    if as_json:
        click.echo(json.dumps({"file": str(file), "problems": list(problems)}))
    else:
        click.echo("\n".join(problems) or f"{file}: as this version renders it")
    ctx.exit(1 if problems else 0)


def _rendering(window: float, interval: float) -> Rendering:
    try:
        return Rendering(window, interval)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
