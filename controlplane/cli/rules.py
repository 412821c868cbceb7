"""`trimtab rules`: the recording rules a Prometheus needs to speak our vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import click

from controlplane.adapters.engines.compare import compare
from controlplane.adapters.engines.rules import recording_rules, recording_text
from controlplane.adapters.engines.template import Rendering
from controlplane.adapters.policyfiles.leaves import seconds
from controlplane.ports import InvalidConfig

FILE_NAME = "recording.yaml"


class Duration(click.ParamType):
    """Seconds, written with their unit as in policy files: `1500ms`, `15s`, `5m`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value in seconds; a usage error that says what is allowed."""
        try:
            return seconds(value)
        except ValueError:
            self.fail(
                f"{value!r} is no duration; allowed: a number with ms, s, m, h or d, like 15s", param, ctx
            )


DURATION = Duration()


@click.group()
def command() -> None:
    """Recording rules: every engine's dialect translated into one set of series.

    The loop, dashboards and alerts all read these series and no raw ones.
    """


@command.command()
@click.option("--window", type=DURATION, default="5m", show_default=True, help="Span of rates and quantiles.")
@click.option("--interval", type=DURATION, default="15s", show_default=True, help="Scrape interval.")
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
