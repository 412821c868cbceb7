"""`trimtab explain`: a decision in words."""

from __future__ import annotations

import json

import click

from controlplane.adapters.sql.reader import Done, Reader
from controlplane.cli.record import database_option, decision_or_say, parse_id, reader, stamp, unknown
from controlplane.domain.ids import DecisionId, PoolName
from controlplane.domain.words import action_words, explain, sentence


@click.command()
@click.argument("what", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def command(what: str, *, as_json: bool, database: str) -> None:
    """Say why: the sentence first, then every rule in order, then what was done and what came of it.

    ID is a decision (demo:weights:42:chat-8b), or a cycle (demo:weights:42) for all its pools.

    \b
    Example:
      trimtab explain demo:capacity:7:chat-8b
    """
    with reader(database) as record:
        ids = _ids(record, what)
        told = [(id_, _lines(record, id_)) for id_ in ids]
    if as_json:
        click.echo(json.dumps([{"id": str(id_), "lines": lines} for id_, lines in told]))
        return
    click.echo("\n\n".join("\n".join(lines) for _, lines in told))


def _ids(record: Reader, what: str) -> list[DecisionId]:
    found = parse_id(what)
    if isinstance(found, DecisionId):
        return [found]
    pools = record.pools(found)
    return [DecisionId(found, PoolName(pool)) for pool in pools] if pools else unknown(record, found)


def _lines(record: Reader, id_: DecisionId) -> list[str]:
    listed = decision_or_say(record, id_)
    head = f"{stamp(listed.at)}  {id_}  {listed.outcome}, mode {listed.mode}"
    told = list(explain(listed.decision))
    if not told or told[0] != sentence(listed.decision):
        told.insert(0, sentence(listed.decision))
    return [told[0], head, *told[1:], *[_done(each) for each in record.actions(id_)]]


def _done(done: Done) -> str:
    history = ", ".join(
        f"{state} {stamp(at)}{f' ({detail})' if detail else ''}" for at, state, detail in done.events
    )
    return f"  action {done.id.ordinal}: {action_words(done.action)}: {history}"
