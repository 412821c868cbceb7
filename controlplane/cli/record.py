"""What the commands about the record share: the option that says where it is, and errors as words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from controlplane.adapters.sql.open import open_reader
from controlplane.adapters.sql.reader import Listed, Reader
from controlplane.domain.ids import CycleId, DecisionId
from controlplane.ports import PortError

F = TypeVar("F", bound=Callable[..., Any])

LATEST_S = 253_402_300_799.0  # the end of year 9999
DEFAULT_URL = "sqlite:///var/trimtab.db"


def database_option(command: F) -> F:
    """`--database URL`, from TRIMTAB_DATABASE where it is set."""
    return click.option(
        "--database",
        envvar="TRIMTAB_DATABASE",
        default=DEFAULT_URL,
        show_default=True,
        help="Where the record is (also TRIMTAB_DATABASE). Reading never creates one.",
    )(command)


def url_of(database: str) -> str:
    """A path is taken for an SQLite file."""
    return database if "://" in database else f"sqlite:///{database}"


@contextmanager
def reader(database: str) -> Iterator[Reader]:
    """The record, for reading; what goes wrong becomes one sentence and exit status 1."""
    try:
        opened = open_reader(url_of(database))
        try:
            yield opened
        finally:
            opened.close()
    except PortError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:  # a word or an instant in a row that no version ever wrote
        raise click.ClickException(f"the record is damaged: {error}") from error


def parse_id(text: str) -> DecisionId | CycleId:
    """A decision's or a cycle's id. Raises a usage error that shows what they look like."""
    for form in (DecisionId, CycleId):
        try:
            return form.parse(text)
        except ValueError:
            continue
    raise click.UsageError(
        f"{text!r} is no id; a decision looks like demo:weights:42:chat-8b, a cycle like demo:weights:42"
    )


def decision_or_say(record: Reader, id_: DecisionId) -> Listed:
    """One decision. Raises an error that names the nearest there is."""
    return record.decision(id_) or unknown(record, id_)


def unknown(record: Reader, id_: DecisionId | CycleId) -> NoReturn:
    """Raises an error that says what there is instead of an id that is not on record."""
    cycle = id_.cycle if isinstance(id_, DecisionId) else id_
    nearest = record.nearest(cycle)
    if nearest is None:
        clusters = ", ".join(sorted({cluster for cluster, *_ in record.runs()})) or "none"
        raise click.ClickException(
            f"{id_} is not on record, nor any {cycle.kind} cycle of its cluster (clusters here: {clusters})"
        )
    if nearest != cycle:
        raise click.ClickException(f"{id_} is not on record; the nearest {cycle.kind} cycle is {nearest}")
    pools = ", ".join(record.pools(cycle)) or "none"
    raise click.ClickException(f"{id_} is not on record; cycle {cycle} decided for these pools: {pools}")


def stamp(at: float) -> str:
    """An instant in UTC, ISO 8601, to the second; one beyond the calendar as a damaged row has it."""
    if not 0.0 <= at <= LATEST_S:
        return f"{at:.0f} s"
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
