"""Replay: recorded decisions computed again in a fresh process, without network and without their plan."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from controlplane.adapters.sql.codec import pack
from controlplane.adapters.sql.engine import writing
from controlplane.adapters.sql.open import Record, open_record
from controlplane.adapters.sql.tables import CycleRow, DecisionRow
from controlplane.domain.ids import CycleKind
from controlplane.loop.replay import compare, recompute
from tests.adapters.sql.history import POOL, cycle_record, observed, write
from tests.builders import NOW, steady_pool

WITHOUT_NETWORK = """
import socket, sys
class Refused(socket.socket):
    def __init__(self, *_args, **_more):
        raise RuntimeError("replay opened a socket")
socket.socket = Refused
from controlplane.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return open_record(f"sqlite:///{tmp_path / 'trimtab.db'}", "demo", "demo", "run-1")


def replay(record: Record, *arguments: str) -> tuple[int, dict[str, object]]:
    """`trimtab replay --json` in a process of its own, in which a socket is an error."""
    record.lease.release()
    record.close()
    command = [
        sys.executable,
        "-c",
        WITHOUT_NETWORK,
        "replay",
        "--json",
        "--database",
        str(record.engine.url),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_every_decision_comes_out_as_it_was_recorded(record: Record) -> None:
    write(record, 10)
    status, told = replay(record, "--all")
    assert status == 0
    assert (told["replayed"], told["identical"], told["different"]) == (10, 10, [])


def test_one_decision_is_replayed_by_its_id(record: Record) -> None:
    write(record, 3)
    status, told = replay(record, "demo:weights:2:chat-8b")
    assert status == 0
    assert (told["replayed"], told["identical"]) == (1, 1)


def test_the_stored_plan_takes_no_part_in_what_is_computed(record: Record) -> None:
    """With every stored decision replaced, the computation is unmoved: only the comparison tells."""
    write(record, 2)
    with writing(record.engine) as session:
        rows = session.scalars(select(DecisionRow).order_by(DecisionRow.kind)).all()
        capacity, weights = rows[0].decision, rows[1].decision
        rows[0].decision, rows[1].decision = weights, capacity
    status, told = replay(record, "--all")
    assert status == 1
    assert (told["replayed"], told["identical"]) == (2, 0)
    paths = [gap["path"] for each in told["different"] for gap in each["differences"]]  # type: ignore[attr-defined]
    assert any(path.startswith("plan.decisions.chat-8b") for path in paths)


def test_changing_one_decisive_input_changes_the_result() -> None:
    told = cycle_record(1, observed(CycleKind.WEIGHTS, NOW, limit=40))
    assert compare(told.cycle, recompute(told.frame), (told.plan, told.next_state)).identical
    assert told.plan.decisions[POOL].actions == ()
    changed = replace(told.frame, observation=observed(CycleKind.WEIGHTS, NOW, limit=8))
    replayed = compare(told.cycle, recompute(changed), (told.plan, told.next_state))
    assert not replayed.identical
    assert len(recompute(changed)[0].decisions[POOL].actions) == 4


def test_a_stored_observation_that_was_changed_is_found(record: Record) -> None:
    write(record, 4)
    other = steady_pool(4, running=55.0, now=NOW + 2.0)
    with writing(record.engine) as session:
        session.execute(
            update(CycleRow)
            .where(CycleRow.kind == CycleKind.CAPACITY, CycleRow.seq == 1)
            .values(observation=pack(other))
        )
    status, told = replay(record, "--all")
    assert status == 1
    assert [each["cycle"] for each in told["different"]] == ["demo:capacity:1"]  # type: ignore[attr-defined]
