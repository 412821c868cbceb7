"""`trimtab replay`: compute recorded decisions again, and say whether they come out the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from controlplane import __version__
from controlplane.adapters.sql.reader import Reader, Stored
from controlplane.cli.record import database_option, parse_id, reader
from controlplane.domain.ids import CycleId, DecisionId
from controlplane.loop.replay import Replayed, compare, recompute

SHOWN = 10


@click.command()
@click.argument("what", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every cycle of the record.")
@click.option("--run", "run_id", help="Only cycles of this run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def command(what: str | None, *, everything: bool, run_id: str | None, as_json: bool, database: str) -> None:
    """Compute a decision (or a cycle, or --all) again from what was recorded before it.

    No network and no clock take part, and the stored plan is only looked at afterwards. Exit status 1
    where anything differs.

    \b
    Examples:
      trimtab replay demo:weights:42:chat-8b
      trimtab replay --all --database report.db
    """
    if everything == (what is not None):
        raise click.UsageError("give either an ID or --all")
    with reader(database) as record:
        ids = record.cycle_ids(run_id) if what is None else [_cycle_of(what)]
        done = [_replay(record, id_) for id_ in _progress(ids)]
    _say(done, as_json=as_json)
    if any(not each.identical for each, _ in done):
        sys.exit(1)


def _progress(ids: Sequence[CycleId]) -> Iterable[CycleId]:
    return track(ids, "replaying", console=Console(stderr=True), disable=len(ids) < SHOWN, transient=True)


def _cycle_of(what: str) -> CycleId:
    """The cycle of a decision's or a cycle's id: a pool is replayed with its whole cycle."""
    found = parse_id(what)
    return found.cycle if isinstance(found, DecisionId) else found


def _replay(record: Reader, id_: CycleId) -> tuple[Replayed, Stored]:
    stored = record.cycle(id_)
    if stored is None:
        raise click.ClickException(f"no cycle {id_}; `trimtab decisions list` shows those there are")
    computed = recompute(stored.frame)
    return compare(id_, computed, (record.plan(id_, stored), stored.next_state)), stored


def _say(done: Sequence[tuple[Replayed, Stored]], *, as_json: bool) -> None:
    different = [each for each, _ in done if not each.identical]
    versions = sorted({stored.code_version for _, stored in done} - {__version__})
    decisions = sum(len(stored.frame.policies.pools) for _, stored in done)
    if as_json:
        body = {
            "replayed": len(done),
            "decisions": decisions,
            "identical": len(done) - len(different),
            "other_versions": versions,
            "different": [_as_data(each) for each in different],
        }
        click.echo(json.dumps(body))
        return
    click.echo(
        f"{len(done)} cycles with {decisions} decisions replayed, {len(done) - len(different)} identical"
    )
    if versions:
        click.echo(
            f"recorded by other versions of this program: {', '.join(versions)} (this is {__version__})"
        )
    for each in different[:SHOWN]:
        click.echo(f"{each.cycle} differs:")
        for gap in each.differences[:SHOWN]:
            click.echo(f"  {gap.path}: stored {gap.stored}, recomputed {gap.recomputed}")


def _as_data(replayed: Replayed) -> dict[str, Any]:
    gaps = [
        {"path": each.path, "stored": each.stored, "recomputed": each.recomputed}
        for each in replayed.differences
    ]
    return {"cycle": str(replayed.cycle), "differences": gaps}
