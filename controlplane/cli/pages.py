"""`trimtab pages`: alerts that somebody was told of, and the decisions around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane.adapters.sql.reader import Listed, Page, PageFilter, PageId, Reader
from controlplane.cli.decisions import Instant
from controlplane.cli.record import database_option, reader, stamp
from controlplane.domain.words import sentence
from controlplane.ports import PageStatus

_WIDTH_MIN = 180
"""Columns of the list: an id that is cut is none, so a narrower window breaks lines instead."""

_STATUS = click.Choice([each.value for each in PageStatus])


class _Id(click.ParamType[PageId]):
    """A page's id."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PageId:
        try:
            return value if isinstance(value, PageId) else PageId.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("id_", metavar="[ID]", type=_Id(), required=False)
@click.option("--pool", help="Only this pool.")
@click.option("--status", type=_STATUS, help="Only those that still fire, or that have ended.")
@click.option("--since", type=Instant(), help="Not begun before this time.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="Rows at most.")
@click.option("--before", type=_Id(), help="The next page of the list: the id of its last row.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def command(  # noqa: PLR0913  # one parameter an option
    *,
    id_: PageId | None,
    pool: str | None,
    status: str | None,
    since: float | None,
    limit: int,
    before: PageId | None,
    as_json: bool,
    database: str,
) -> None:
    """List alerts that Alertmanager told the controller of, newest first; with an ID, show one of them
    with the decisions around it.

    An alert is one row from its start to its end, however often it was told. Its decision is the first
    change of capacity from a minute before it on, else the last decision before it.

    \b
    Examples:
      trimtab pages --status firing
      trimtab pages --pool chat-8b --since 1d --json
      trimtab pages demo:1f0c2d3e4a5b6c7d:1796422200000000
    """
    chosen = PageFilter(None, pool, PageStatus(status) if status else None, since)
    if id_ is not None and (before is not None or chosen != PageFilter()):
        raise click.UsageError("--pool, --status, --since and --before are for the list, not for one page")
    with reader(database) as record:
        if id_ is not None:
            _show(record, id_, as_json=as_json)
            return
        rows = record.pages(chosen, limit, before)
    _list(rows, limit, as_json=as_json)


def _list(rows: Sequence[Page], limit: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_row(each) for each in rows]))
        return
    if rows:
        Console(width=max(Console().width, _WIDTH_MIN)).print(_table(rows))
    else:
        click.echo("No page matches. Widen --since, or drop a filter.")
    if len(rows) == limit:
        click.echo(f"more: --before {rows[-1].id}", err=True)


def _show(record: Reader, id_: PageId, *, as_json: bool) -> None:
    page = record.page(id_) or _unknown(record, id_)
    around = record.around(page)
    if as_json:
        click.echo(json.dumps({**_row(page), "around": [_decided(each) for each in around]}))
    else:
        click.echo("\n".join([*_about(record, page), *_around(page, around)]))


def _unknown(record: Reader, id_: PageId) -> NoReturn:
    newest = record.pages(PageFilter(cluster=id_.cluster), 1)
    there = f"the newest of its cluster is {newest[0].id}" if newest else "nor any other of its cluster"
    raise click.ClickException(f"{id_} is not on record; {there}")


def _about(record: Reader, page: Page) -> list[str]:
    times = (
        "once"
        if page.notifications == 1
        else f"{page.notifications} times, last at {stamp(page.last_seen_at)}"
    )
    until = "" if page.resolved_at is None else f", ended {stamp(page.resolved_at)}"
    head = f"{page.alertname} ({page.severity or 'no severity'}) of {page.pool or 'no pool'}: {page.status}"
    lines = [f"{head} since {stamp(page.id.starts_at)}{until}, told {times}"]
    lines += [f"  {page.summary}"] if page.summary else []
    lines += [f"  runbook: {page.runbook}"] if page.runbook else []
    lines.append(f"  labels: {', '.join(f'{name}={value}' for name, value in page.labels.items())}")
    linked = record.decision(page.decision) if page.decision else None
    if linked is not None:
        lines.append(f"  decision {stamp(linked.at)} {linked.id}: {sentence(linked.decision)}")
    elif page.decision is not None:
        lines.append(f"  decision {page.decision}, no longer kept")
    return lines


def _around(page: Page, around: Sequence[Listed]) -> list[str]:
    if not page.pool:
        return ["about no pool, so that no decision stands around it"]
    if not around:
        return ["nothing changed or was held around it"]
    return ["what changed or was held around it:", *[f"  {_words(each)}" for each in around]]


def _words(row: Listed) -> str:
    again = "" if row.repeats == 1 else f" ({row.repeats}x, until {stamp(row.at)})"
    return f"{stamp(row.first_at)} {row.id}: {sentence(row.decision)}{again}"


def _row(page: Page) -> dict[str, Any]:
    return {
        "id": str(page.id),
        "cluster": page.id.cluster,
        "since": stamp(page.id.starts_at),
        "alertname": page.alertname,
        "severity": page.severity,
        "pool": page.pool or None,
        "status": page.status,
        "resolved_at": None if page.resolved_at is None else stamp(page.resolved_at),
        "first_seen_at": stamp(page.first_seen_at),
        "last_seen_at": stamp(page.last_seen_at),
        "notifications": page.notifications,
        "summary": page.summary,
        "runbook": page.runbook,
        "labels": page.labels,
        "decision": str(page.decision) if page.decision else None,
    }


def _decided(row: Listed) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "first_at": stamp(row.first_at),
        "at": stamp(row.at),
        "outcome": row.outcome,
        "repeats": row.repeats,
        "sentence": sentence(row.decision),
    }


def _table(rows: Sequence[Page]) -> Table:
    table = Table(box=None)
    for title in ("since (UTC)", "alert", "severity", "pool", "status", "times", "decision", "page"):
        table.add_column(title, overflow="fold")
    for row in rows:
        cells = (row.alertname, row.severity, row.pool, row.status, f"{row.notifications}x")
        ids = (str(row.decision or ""), str(row.id))
        table.add_row(stamp(row.id.starts_at), *map(Text, (*cells, *ids)))
    return table
