"""`trimtab hold`: what people say stands above what the rules say."""

from __future__ import annotations

import functools
import getpass
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane.adapters.sql.people import Known, People, Said, Word, open_people
from controlplane.cli.names import Name
from controlplane.cli.numbers import Span
from controlplane.cli.record import database_option, stamp, url_of
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.domain.observation import Effect, Hold
from controlplane.domain.words import slot
from controlplane.ports import PortError

_WIDTH_MIN = 140
_TEXT_MAX = 500
_SAYS = {
    Effect.HOLD: "nothing changes",
    Effect.PIN_INSTANCES: "{} instances",
    Effect.PIN_WEIGHT: "weight {} %",
}


class _Text(click.ParamType[str]):
    """A few words of a person: the explanation of every decision it touches repeats them."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = " ".join(str(value).split())
        if not text or len(text) > _TEXT_MAX or not text.isprintable():
            self.fail(f"allowed: 1 to {_TEXT_MAX} printable characters", param, ctx)
        return text


@dataclass(frozen=True, slots=True)
class _Why:
    """What every word on record carries: why, by whom, and until when (epoch seconds, or None)."""

    reason: str
    author: str
    until: float | None

    def hold(
        self,
        pool: PoolName | None,
        effect: Effect = Effect.HOLD,
        instance: InstanceId | None = None,
        level: int | None = None,
    ) -> Hold:
        """The word, said now."""
        return Hold(pool, self.author, self.reason, time.time(), self.until, effect, instance, level)


def _why_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--reason`, `--author` and `--for`, handed on together as `why`."""

    @functools.wraps(command)
    def bundled(*, reason: str, author: str, for_s: float | None, **rest: Any) -> None:
        until = None if for_s is None else time.time() + for_s
        command(why=_Why(reason, author, until), **rest)

    wrapped: Callable[..., None] = bundled
    for option in (
        click.option("--for", "for_s", type=Span(), help="Ends by itself after this: 90s, 15m, 2h, 3d."),
        click.option("--author", type=_Text(), default=getpass.getuser, help="Who says it.  [default: you]"),
        click.option("--reason", type=_Text(), required=True, help="Why; everybody who asks will read it."),
        database_option,
    ):
        wrapped = option(wrapped)
    return wrapped


@click.group()
def command() -> None:
    """Hold a pool or the fleet, or pin a size or a weight; list what is in force, and lift it.

    A word is in the record with author and reason, the next cycle obeys it, and every decision that it
    touches says so. A hold stands above a pin, a pin above every rule but the policy's bounds. What people
    did can't be taken out of the record again.

    \b
    Examples:
      trimtab hold place chat-8b --reason "load test" --for 2h
      trimtab hold place --fleet --reason "incident 4711"
      trimtab hold pin chat-8b 14 --reason "launch at noon" --for 6h
      trimtab hold weight chat-8b-03 50 --reason "new card, being watched"
      trimtab hold list
      trimtab hold lift 3fa9c1 --reason "test is over"
    """


@command.command()
@click.argument("pool", type=Name(), required=False)
@click.option("--fleet", is_flag=True, help="All pools.")
@_why_options
def place(*, pool: str | None, fleet: bool, why: _Why, database: str) -> None:
    """Nothing of POOL (or, with --fleet, of any pool) changes until this ends or is lifted.

    \b
    Example:
      trimtab hold place chat-8b --reason "load test" --for 2h
    """
    if (pool is None) != fleet:
        raise click.UsageError("name a POOL, or say --fleet")
    with _people(database) as people:
        known = people.known()
        _put(people, known, why.hold(_pool(known, pool)))


@command.command()
@click.argument("pool", type=Name())
@click.argument("instances", type=click.IntRange(0, 10_000))
@_why_options
def pin(*, pool: str, instances: int, why: _Why, database: str) -> None:
    """POOL has INSTANCES instances, whatever its load, within its policy's bounds.

    What can't be seen well enough does not shrink, even to a pin; instances leave drained, and no more of
    them at a time than otherwise.

    \b
    Example:
      trimtab hold pin chat-8b 14 --reason "launch at noon" --for 6h
    """
    with _people(database) as people:
        known = people.known()
        _put(people, known, why.hold(_pool(known, pool), Effect.PIN_INSTANCES, level=instances))


@command.command()
@click.argument("instance")
@click.argument("percent", type=click.IntRange(1, 200))
@_why_options
def weight(*, instance: str, percent: int, why: _Why, database: str) -> None:
    """INSTANCE (its id, or its slot such as chat-8b-03) has PERCENT of the usual weight, whatever its speed.

    \b
    Example:
      trimtab hold weight chat-8b-03 50 --reason "new card, being watched"
    """
    with _people(database) as people:
        known = people.known()
        id_ = _instance(known, instance)
        _put(people, known, why.hold(known.instances[id_], Effect.PIN_WEIGHT, id_, percent))


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Rows at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def list_(*, everything: bool, limit: int, as_json: bool, database: str) -> None:
    """Show the holds and pins in force, the newest first.

    \b
    Example:
      trimtab hold list --all --json
    """
    now = time.time()
    with _people(database) as people:
        words = [each for each in people.words(limit) if everything or each.in_force(now)]
    if as_json:
        click.echo(json.dumps([_row(each, now) for each in words]))
    elif words:
        Console(width=max(Console().width, _WIDTH_MIN)).print(_table(words, now))
    else:
        click.echo(f"Nothing {'was ever held or pinned' if everything else 'is held or pinned'}.")


@command.command()
@click.argument("hold_id", metavar="ID")
@click.option("--author", type=_Text(), default=getpass.getuser, help="Who lifts it.  [default: you]")
@click.option("--reason", type=_Text(), required=True, help="Why.")
@database_option
def lift(*, hold_id: str, author: str, reason: str, database: str) -> None:
    """End the hold or pin ID before its time.

    \b
    Example:
      trimtab hold lift 3fa9c1 --reason "test is over"
    """
    with _people(database) as people:
        people.lift(people.known().run, hold_id, Said(author, reason, time.time()))
    click.echo(f"{hold_id} is lifted")


@contextmanager
def _people(database: str) -> Iterator[People]:
    try:
        people = open_people(url_of(database))
        try:
            yield people
        finally:
            people.close()
    except PortError as error:
        raise click.ClickException(str(error)) from error


def _put(people: People, known: Known, hold: Hold) -> None:
    hold_id = secrets.token_hex(3)
    people.place(known.run, hold_id, hold)
    until = "it is lifted" if hold.until is None else stamp(hold.until)
    click.echo(f"{hold_id}: {_subject(hold)}: {_says(hold)}, until {until}")


def _pool(known: Known, name: str | None) -> PoolName | None:
    if name is not None and name not in known.pools:
        raise click.ClickException(f"there is no pool {name}; there are {', '.join(sorted(known.pools))}")
    return None if name is None else PoolName(name)


def _instance(known: Known, name: str) -> InstanceId:
    found = [each for each in known.instances if name in {each, slot(each)}]
    if len(found) != 1:
        raise click.ClickException(
            f"{len(found) or 'no'} instance{'s' if len(found) > 1 else ''} of the last cycle "
            f"{'are' if len(found) > 1 else 'is'} called {name}; `trimtab gateway show` lists them"
        )
    return found[0]


def _subject(hold: Hold) -> str:
    return hold.instance or hold.pool or "the fleet"


def _says(hold: Hold) -> str:
    return _SAYS[hold.effect].format(hold.level)


def _state(word: Word, now: float) -> str:
    if word.lifted_at is not None:
        return f"lifted {stamp(word.lifted_at)}"
    return "in force" if word.in_force(now) else "over"


def _table(words: Sequence[Word], now: float) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("id", "of", "says", "author", "reason", "since", "until", "state"):
        table.add_column(name, no_wrap=name in {"id", "of"}, overflow="fold")
    for word in words:
        hold = word.hold
        until = "" if hold.until is None else stamp(hold.until)
        cells = (word.hold_id, _subject(hold), _says(hold), hold.author, hold.reason)
        table.add_row(*(Text(each) for each in (*cells, stamp(hold.since), until, _state(word, now))))
    return table


def _row(word: Word, now: float) -> dict[str, Any]:
    hold = word.hold
    return {
        "id": word.hold_id,
        "cluster": word.cluster,
        "effect": hold.effect.value,
        "pool": hold.pool,
        "instance": hold.instance,
        "level": hold.level,
        "author": hold.author,
        "reason": hold.reason,
        "since": hold.since,
        "until": hold.until,
        "lifted_at": word.lifted_at,
        "in_force": word.in_force(now),
    }
