"""`trimtab replay`: compute recorded decisions again, and say whether they come out the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from controlplane import __version__
from controlplane.adapters.sql.codec import Damaged
from controlplane.adapters.sql.reader import Reader
from controlplane.cli.record import database_option, parse_id, reader, unknown
from controlplane.domain.ids import CycleId, DecisionId
from controlplane.loop.replay import Difference, Replayed, compare, recompute

SHOWN = 10
WIDTH = 160


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of one cycle's replay: frames are large, and a run has many.

    `problem`: why there is nothing to hold the result against, empty where there is.
    """

    replayed: Replayed
    code_version: str
    decisions: int
    problem: str = ""

    @property
    def identical(self) -> bool:
        """Whether it came out as it was recorded."""
        return self.replayed.identical and not self.problem


@click.command()
@click.argument("first", metavar="[ID]", required=False)
@click.argument("last", metavar="[LAST]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every cycle of the record.")
@click.option("--run", "run_id", help="Only cycles of this run; with --all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_option
def command(  # noqa: PLR0913  # one parameter an option
    first: str | None,
    last: str | None,
    *,
    everything: bool,
    run_id: str | None,
    as_json: bool,
    database: str,
) -> None:
    """Compute a decision again from what was recorded before it was taken.

    ID is a decision or a cycle; with LAST, all cycles of that kind from the one to the other; with
    --all, all there are. No network and no clock take part, and the stored plan is only looked at
    afterwards. Exit status 1 where anything differs.

    \b
    Examples:
      trimtab replay demo:weights:42:chat-8b
      trimtab replay demo:weights:40 demo:weights:60
      trimtab replay --all --database report.db
    """
    if everything == (first is not None) or (run_id is not None and not everything):
        raise click.UsageError("give either an ID, or two, or --all (which --run can narrow)")
    with reader(database) as record:
        done = [_tried(record, id_) for id_ in _progress(_chosen(record, first, last, run_id))]
    if not done:
        raise click.ClickException("there is nothing to replay: no cycle matches")
    _say(done, as_json=as_json)
    if not all(each.identical for each in done):
        sys.exit(1)


def _chosen(
    record: Reader, first: str | None, last: str | None, run_id: str | None
) -> Sequence[DecisionId | CycleId]:
    if first is None:
        return record.cycle_ids(run_id)
    if last is None:
        return [parse_id(first)]
    begin, end = _cycle_of(parse_id(first)), _cycle_of(parse_id(last))
    if (begin.cluster, begin.kind) != (end.cluster, end.kind):
        raise click.UsageError("the two ids must be of one cluster and one kind")
    found = [each for each in record.cycle_ids() if (each.cluster, each.kind) == (end.cluster, end.kind)]
    return [each for each in found if begin.seq <= each.seq <= end.seq]


def _progress(ids: Sequence[DecisionId | CycleId]) -> Iterable[DecisionId | CycleId]:
    return track(ids, "replaying", console=Console(stderr=True), disable=len(ids) < SHOWN, transient=True)


def _cycle_of(id_: DecisionId | CycleId) -> CycleId:
    return id_.cycle if isinstance(id_, DecisionId) else id_


def _tried(record: Reader, id_: DecisionId | CycleId) -> Result:
    """One damaged cycle does not keep the others from being looked at."""
    try:
        return _replay(record, id_)
    except Damaged as error:
        return Result(Replayed(_cycle_of(id_), ()), __version__, 0, str(error))


def _replay(record: Reader, id_: DecisionId | CycleId) -> Result:
    """A pool is computed with its whole cycle, and held against its own part of it."""
    cycle = _cycle_of(id_)
    stored = record.cycle(cycle) or unknown(record, id_)
    computed = recompute(stored.frame)
    plan = record.plan(cycle, stored)
    replayed = compare(cycle, computed, (plan, stored.next_state))
    if isinstance(id_, CycleId):
        return Result(replayed, stored.code_version, len(plan.decisions))
    if id_.pool not in plan.decisions:
        unknown(record, id_)
    return Result(replayed.of(id_.pool), stored.code_version, 1)


def _say(done: Sequence[Result], *, as_json: bool) -> None:
    different = [each for each in done if not each.identical]
    versions = sorted({each.code_version for each in done} - {__version__})
    decisions = sum(each.decisions for each in done)
    if as_json:
        click.echo(json.dumps(_as_data(done, decisions, versions, different)))
        return
    click.echo(
        f"{len(done)} cycles with {decisions} decisions replayed, {len(done) - len(different)} identical"
    )
    if versions:
        click.echo(
            f"recorded by other versions of this program: {', '.join(versions)} (this is {__version__})"
        )
    for each in different[:SHOWN]:
        click.echo(each.problem or f"{each.replayed.cycle} differs:")
        for gap in each.replayed.differences[:SHOWN]:
            click.echo(f"  {_words(gap)}")


def _words(gap: Difference) -> str:
    stored, recomputed = (
        text if len(text) <= WIDTH else f"{text[:WIDTH]}…" for text in (gap.stored, gap.recomputed)
    )
    return f"{gap.path}: stored {stored}, recomputed {recomputed}"


def _as_data(
    done: Sequence[Result], decisions: int, versions: Sequence[str], different: Sequence[Result]
) -> dict[str, Any]:
    return {
        "replayed": len(done),
        "decisions": decisions,
        "identical": len(done) - len(different),
        "other_versions": versions,
        "different": [
            {
                "cycle": str(each.replayed.cycle),
                "problem": each.problem,
                "differences": [asdict(gap) for gap in each.replayed.differences],
            }
            for each in different
        ],
    }
