"""`trimtab db`: the record's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlalchemy import Engine

from controlplane.adapters.sql import migrate
from controlplane.adapters.sql.check import find_problems
from controlplane.adapters.sql.engine import open_engine
from controlplane.cli.record import database_option, url_of
from controlplane.ports import PortError


@click.group()
def command() -> None:
    """Upgrade, downgrade or look at the record's schema.

    `trimtab run` upgrades by itself; these are for doing it beforehand, or for going back.

    \b
    Example:
      trimtab db upgrade --database sqlite:///var/trimtab.db
    """


@command.command()
@database_option
def upgrade(database: str) -> None:
    """Bring the database to this version's schema; creates an SQLite file where there is none."""
    with _engine(database, create=True) as engine:
        migrate.migrate(engine)
        click.echo(f"at revision {migrate.current(engine)}")


@command.command()
@click.argument("revision")
@click.confirmation_option(prompt="What the older schema does not know is lost. Go on?")
@database_option
def downgrade(revision: str, database: str) -> None:
    """Go back to REVISION (base: an empty schema)."""
    with _engine(database, create=False) as engine:
        migrate.downgrade(engine, revision)
        click.echo(f"at revision {migrate.current(engine) or 'none'}")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def current(database: str, *, as_json: bool) -> None:
    """Show the database's revision beside the one needed here. Exit status 1 where they differ."""
    with _engine(database, create=False) as engine:
        found, needed = migrate.current(engine), migrate.head()
    click.echo(
        json.dumps({"current": found, "head": needed}) if as_json else f"at {found or 'none'}, needs {needed}"
    )
    if found != needed:
        raise SystemExit(1)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def check(database: str, *, as_json: bool) -> None:
    """Look for damage: the file itself, rows without their parents, loans whose entries do not sum to
    zero, tables that are not ours.

    Reads everything; it may take a while on a large record. Exit status 1 where something is found.

    \b
    Example:
      trimtab db check --database sqlite:///var/trimtab.db
    """
    with _engine(database, create=False) as engine:
        problems = find_problems(engine)
    if as_json:
        click.echo(json.dumps({"ok": not problems, "problems": problems}))
    else:
        click.echo("\n".join(problems) or "no damage found")
    if problems:
        raise SystemExit(1)


@contextmanager
def _engine(database: str, *, create: bool) -> Iterator[Engine]:
    try:
        engine = open_engine(url_of(database), create=create)
        try:
            yield engine
        finally:
            engine.dispose()
    except PortError as error:
        raise click.ClickException(str(error)) from error
