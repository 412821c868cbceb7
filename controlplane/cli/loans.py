"""`trimtab loans`: who has whose GPUs, and the ledger behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane.adapters.sql.reader import Balance, Booked, Lent
from controlplane.cli.names import Name
from controlplane.cli.record import database_option, reader, stamp
from controlplane.domain.loans import WORDS

_WIDTH_MIN = 180
"""Columns of a list: an id that is cut is none, so a narrower window breaks lines instead."""

_LIMIT = 30


@dataclass(frozen=True, slots=True)
class _Sum:
    """What stands open between two."""

    borrower: str
    lender: str
    gpus: int
    loans: int


@click.command()
@click.option("--pool", type=Name(), help="Only loans of this pool, as borrower or lender (also: buffer).")
@click.option("--all", "everything", is_flag=True, help="Closed ones too, newest first.")
@click.option("--entries", is_flag=True, help="The ledger's entries and balances instead, newest first.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    help=f"Rows at most, with --all or --entries.  [default: {_LIMIT}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def command(  # noqa: PLR0913  # one parameter an option
    *, pool: str | None, everything: bool, entries: bool, limit: int | None, as_json: bool, database: str
) -> None:
    """Show who has whose GPUs: every open loan, newest first, and what it comes to.

    A loan is opened before the order that uses it leaves, and closed when its GPUs are seen to be free
    again. Its decision says why: `trimtab explain ID`. Sums are of open loans. Each loan is booked twice,
    once where GPUs leave and once where they come: --entries shows that all of it sums to zero, and ends
    with exit status 1 where it does not.

    \b
    Examples:
      trimtab loans
      trimtab loans --pool chat-8b --all --limit 100
      trimtab loans --entries --json
    """
    if everything and entries:
        raise click.UsageError("--entries are of all loans already: leave --all out")
    if limit is not None and not (everything or entries):
        raise click.UsageError("--limit is for --all and --entries: open loans are shown whole")
    most = limit or _LIMIT
    with reader(database) as record:
        if entries:
            booked, balance = record.booked(most, pool), record.balance()
        else:
            open_ = record.loans(open_only=True, pool=pool)
            rows = record.loans(most, pool=pool) if everything else open_
    if entries:
        _ledger(booked, balance, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(_listed(rows, open_)))
    else:
        _list(rows, open_, pool, everything=everything)
        _say_of_more(len(rows), most if everything else None)


def _say_of_more(shown: int, limit: int | None) -> None:
    if shown == limit:
        click.echo(f"there may be more: --limit {2 * shown}", err=True)


def _list(rows: Sequence[Lent], open_: Sequence[Lent], pool: str | None, *, everything: bool) -> None:
    if not rows:
        click.echo(f"No loan{f' of {pool}' if pool else ''} {'is on record' if everything else 'is open'}.")
        return
    _print(_table(rows, time.time(), closed=everything))
    for each in _sums(open_):
        click.echo(f"{each.borrower} has {_gpus(each.gpus)} of {each.lender} in {_loans(each.loans)}")
    click.echo(f"open in all: {_gpus(sum(each.loan.gpus for each in open_))} in {_loans(len(open_))}")


def _listed(rows: Sequence[Lent], open_: Sequence[Lent]) -> dict[str, Any]:
    return {
        "loans": [_row(each) for each in rows],
        "open": [
            {"pool": each.borrower, "lender": each.lender, "gpus": each.gpus, "loans": each.loans}
            for each in _sums(open_)
        ],
        "open_gpus": sum(each.loan.gpus for each in open_),
        "open_loans": len(open_),
    }


def _ledger(rows: Sequence[Booked], balance: Balance, *, as_json: bool) -> None:
    if as_json:
        entries = [
            {"at": stamp(each.at), "loan": each.loan_id, "account": each.account, "gpus": each.gpus}
            for each in rows
        ]
        body = {"entries": entries, "balances": balance.accounts, "broken": balance.broken}
        click.echo(json.dumps({**body, "sum": sum(balance.accounts.values())}))
    else:
        _print(_entries(rows))
        held = ", ".join(f"{account} {gpus:+d}" for account, gpus in balance.accounts.items() if gpus)
        click.echo(
            f"balances of all entries: {held or 'nothing is lent'}; their sum is "
            f"{sum(balance.accounts.values())}"
        )
    if balance.broken:
        raise click.ClickException(
            f"the ledger is damaged: entries are missing or do not sum to zero of {', '.join(balance.broken)}"
        )


def _sums(open_: Sequence[Lent]) -> list[_Sum]:
    pairs = sorted({(each.loan.borrower, each.loan.lender) for each in open_})
    return [_sum(open_, borrower, lender) for borrower, lender in pairs]


def _sum(open_: Sequence[Lent], borrower: str, lender: str) -> _Sum:
    gpus = [each.loan.gpus for each in open_ if (each.loan.borrower, each.loan.lender) == (borrower, lender)]
    return _Sum(borrower, lender, sum(gpus), len(gpus))


def _row(lent: Lent) -> dict[str, Any]:
    loan = lent.loan
    return {
        "id": loan.loan_id,
        "pool": loan.borrower,
        "lender": loan.lender,
        "instance": loan.instance,
        "node": loan.node,
        "gpus": loan.gpus,
        "since": stamp(loan.opened_at),
        "code": loan.code,
        "decision": _decision(lent),
        "due_at": None if lent.due_at is None else stamp(lent.due_at),
        "closed_at": None if lent.closed_at is None else stamp(lent.closed_at),
        "closed_by": lent.closed_by,
        "close_code": lent.close_code,
    }


def _table(rows: Sequence[Lent], now: float, *, closed: bool) -> Table:
    table = Table(box=None)
    titles = ("pool", "of", "instance", "node", "GPUs", "since (UTC)", "for", "why", "decision")
    for title in (*titles, "closed (UTC)") if closed else titles:
        table.add_column(title, overflow="fold", justify="right" if title == "GPUs" else "left")
    for each in rows:
        loan = each.loan
        end = (() if each.closed_at is None else (stamp(each.closed_at),)) if closed else ()
        cells = (loan.borrower, loan.lender, loan.instance, loan.node, str(loan.gpus), stamp(loan.opened_at))
        why = WORDS.get(loan.code, loan.code)
        table.add_row(*map(Text, (*cells, _span(each, now), why, _decision(each), *end)))
    return table


def _entries(rows: Sequence[Booked]) -> Table:
    table = Table(box=None)
    for title in ("time (UTC)", "account", "GPUs", "loan"):
        table.add_column(title, overflow="fold", justify="right" if title == "GPUs" else "left")
    for each in rows:
        table.add_row(*map(Text, (stamp(each.at), each.account, f"{each.gpus:+d}", each.loan_id)))
    return table


def _print(table: Table) -> None:
    if table.row_count:
        Console(width=max(Console().width, _WIDTH_MIN)).print(table)


def _span(lent: Lent, now: float) -> str:
    """How long it has stood, or stood; and until when it may."""
    until = now if lent.closed_at is None else lent.closed_at
    due = "" if lent.due_at is None else f", due {stamp(lent.due_at)}"
    return f"{span(until - lent.loan.opened_at)}{due}"


def span(seconds: float) -> str:
    """A span in its two largest units: 42s, 3m 20s, 2h 5m, 4d 3h. A clock that was set back gives 0s."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _decision(lent: Lent) -> str:
    """The decision that opened it: its cycle's, about the borrower."""
    return f"{lent.opened_by}:{lent.loan.borrower}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _loans(count: int) -> str:
    return f"{count} loan{'' if count == 1 else 's'}"
