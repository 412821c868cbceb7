"""`trimtab decisions`: the record of what was decided."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane import forms
from controlplane.adapters.sql.reader import Done, Filter, Listed
from controlplane.cli.names import Name
from controlplane.cli.record import database_option, decision_or_say, parse_id, reader, stamp
from controlplane.domain.ids import CycleKind, DecisionId
from controlplane.domain.plan import Outcome
from controlplane.domain.words import sentence

_LONGEST_AGO = 10
"""Letters of the longest "ago" that is still a time."""


class Instant(click.ParamType[float]):
    """`2026-12-01T03:00`, `2026-12-01`, or `15m`, `2h`, `1d` ago; UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Epoch seconds."""
        if isinstance(value, float):
            return value
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:])
        if unit and value[:-1].isdecimal() and len(value) <= _LONGEST_AGO:
            return dt.datetime.now(dt.UTC).timestamp() - unit * int(value[:-1])
        try:
            parsed = dt.datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time; write 2026-12-01T03:00 (UTC), or 15m, 2h, 1d for ago", param, ctx
            )
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).timestamp()


_WIDTH_MIN = 180
"""Columns of the table: a narrower window breaks lines instead of words."""


@click.group()
def command() -> None:
    """Look at what was decided: every decision, with its why and what became of it.

    \b
    Examples:
      trimtab decisions list --pool chat-8b --since 1h
      trimtab decisions show demo:weights:42:chat-8b
      trimtab explain demo:weights:42:chat-8b
    """


@command.command("list")
@click.option("--pool", type=Name(), help="Only this pool.")
@click.option(
    "--kind", type=click.Choice([each.value for each in CycleKind]), help="Only weights, or only capacity."
)
@click.option("--outcome", type=click.Choice([each.value for each in Outcome]), help="Only this outcome.")
@click.option("--code", help="Only this reason code, such as speed_differs.")
@click.option("--since", type=Instant(), help="Not before this time.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="Rows at most.")
@click.option("--before", help="The next page: the id of the last row of the page before.")
@click.option(
    "--all", "everything", is_flag=True, help="Every decision; else repeats of the same stand as one row."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def list_command(  # noqa: PLR0913  # one parameter an option
    *,
    pool: str | None,
    kind: str | None,
    outcome: str | None,
    code: str | None,
    since: float | None,
    limit: int,
    before: str | None,
    everything: bool,
    as_json: bool,
    database: str,
) -> None:
    """List decisions, newest first. A steady fleet is a few rows: "the same again" is folded, under
    the time at which it began.

    \b
    Examples:
      trimtab decisions list --outcome change --since 2h
      trimtab decisions list --code speed_differs --json
    """
    chosen = Filter(
        pool, CycleKind(kind) if kind else None, Outcome(outcome) if outcome else None, code, since
    )
    with reader(database) as record:
        last = decision_or_say(record, _decision_id(before)).id if before else None
        ask = record.decisions if everything else record.streaks
        rows = list(ask(chosen, limit, last))
    if as_json:
        click.echo(json.dumps([_row(each) for each in rows]))
        return
    if rows:
        Console(width=max(Console().width, _WIDTH_MIN)).print(_table(rows))
    else:
        click.echo("No decision matches. Widen --since, or drop a filter.")
    if len(rows) == limit:
        click.echo(f"more: --before {rows[-1].id}", err=True)


@command.command("show")
@click.argument("decision")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def show_command(decision: str, *, as_json: bool, database: str) -> None:
    """Show one decision as data: its form, and its actions with their history."""
    with reader(database) as record:
        listed = decision_or_say(record, _decision_id(decision))
        actions = record.actions(listed.id)
    body = {
        **_row(listed),
        "decision": json.loads(forms.to_json(listed.decision)),
        "actions": [_action(each) for each in actions],
    }
    if as_json:
        click.echo(json.dumps(body))
    else:
        Console().print_json(data=body)


def _decision_id(text: str) -> DecisionId:
    found = parse_id(text)
    if isinstance(found, DecisionId):
        return found
    raise click.UsageError(f"{text} is a cycle; add a pool, as in {text}:chat-8b")


def _row(row: Listed) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "at": stamp(row.at),
        "pool": row.id.pool,
        "kind": row.id.cycle.kind,
        "mode": row.mode,
        "outcome": row.outcome,
        "code": row.code,
        "repeats": row.repeats,
        "first_at": stamp(row.first_at),
        "sentence": sentence(row.decision),
    }


def _action(done: Done) -> dict[str, Any]:
    return {
        "id": str(done.id),
        **asdict(done.action),
        "state": done.state,
        "detail": done.detail,
        "events": [{"at": stamp(at), "state": state, "detail": detail} for at, state, detail in done.events],
    }


def _table(rows: list[Listed]) -> Table:
    table = Table(box=None)
    for title, whole in (
        ("time (UTC)", True),
        ("decision", True),
        ("outcome", True),
        ("times", True),
        ("until", True),
        ("why", False),
    ):
        table.add_column(title, no_wrap=whole)
    for row in rows:
        once = row.repeats == 1
        times, until = ("", "") if once else (f"{row.repeats}x", stamp(row.at)[11:])
        why = Text(sentence(row.decision))
        table.add_row(stamp(row.first_at), Text(str(row.id)), Text(row.outcome), times, until, why)
    return table
