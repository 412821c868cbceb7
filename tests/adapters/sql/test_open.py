"""Connections, codec and lease: durable, bounded, and led by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text, update

from controlplane.adapters.sql.codec import CODEC, Damaged, pack, unpack
from controlplane.adapters.sql.engine import open_engine, reading, writing
from controlplane.adapters.sql.lease import FileLease
from controlplane.adapters.sql.open import Record, open_reader, open_record
from controlplane.adapters.sql.reader import Filter, Listed
from controlplane.adapters.sql.tables import CycleRow
from controlplane.cli.main import main
from controlplane.domain.ids import DecisionId
from controlplane.domain.state import State
from controlplane.ports import InvalidConfig, Unavailable
from tests.adapters.sql.history import write
from tests.support import eventually

HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from controlplane.adapters.sql.lease import FileLease
assert FileLease(Path(sys.argv[1])).acquire() is True
print("held", flush=True)
time.sleep(60)
"""


def test_sqlite_is_set_to_survive_a_power_cut(record: Record) -> None:
    with reading(record.engine) as session:
        found = [
            session.scalar(text(f"PRAGMA {pragma}"))
            for pragma in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


def test_a_reader_is_not_blocked_by_a_writer(record: Record) -> None:
    write(record, 2)
    with writing(record.engine) as session:
        session.execute(update(CycleRow).values(code_version="next"))
        stored = record.reader.cycle(record.reader.cycle_ids()[0])
        assert stored is not None
        assert stored.code_version == "0.1.0"
    again = record.reader.cycle(record.reader.cycle_ids()[0])
    assert again is not None
    assert again.code_version == "next"


def test_a_second_writer_waits_its_turn_and_then_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.adapters.sql.engine.BUSY_S", 0.1)
    first = open_record(url, "demo")
    second = open_engine(url)
    with writing(first.engine) as session:
        session.execute(update(CycleRow).values(code_version="x"))
        with pytest.raises(Unavailable, match="locked"), writing(second) as other:
            other.execute(update(CycleRow).values(code_version="y"))
    with writing(second) as other:
        other.execute(update(CycleRow).values(code_version="y"))
    second.dispose()
    first.lease.release()
    first.close()


def test_one_controller_a_file_and_a_killed_one_gives_it_back(tmp_path: Path) -> None:
    database = tmp_path / "trimtab.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(database)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable, match=rf"another controller leads .*process {holder.pid}"):
            open_record(f"sqlite:///{database}", "demo")
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    lease = FileLease(database)
    assert eventually(lease.acquire, 5)
    assert lease.held()
    assert lease.holder() == str(os.getpid())
    lease.release()
    assert not lease.held()


def test_a_lease_whose_file_was_taken_away_is_not_held_any_more(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "trimtab.db")
    assert lease.acquire()
    assert lease.held()
    (tmp_path / "trimtab.db.lock").unlink()
    assert not lease.held()
    lease.release()


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="does not exist"):
        open_reader(f"sqlite:///{tmp_path / 'none.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "says"), [("mysql://h/d", "mysql is not supported"), ("nonsense", "not a URL")]
)
def test_a_database_that_cannot_be_is_refused_in_words(wrong: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        open_engine(wrong)


def test_a_source_that_is_none_of_ours_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="allowed: live, backfill, backtest, demo"):
        open_record(url, "demo", "guess")


def test_a_run_says_where_it_came_from(record: Record) -> None:
    assert [(cluster, run, source) for cluster, run, source, _at in record.reader.runs()] == [
        ("demo", "run-1", "demo")
    ]


def test_a_value_comes_back_as_it_was_packed() -> None:
    assert unpack(State, pack(State()), CODEC, "here") == State()


@pytest.mark.parametrize(
    ("packed", "codec", "says"),
    [
        (pack(State()), 99, "row 7: written with codec 99"),
        (pack(State())[:-4], CODEC, "row 7: the stored form is cut"),
        (b"not zlib", CODEC, "row 7: "),
        (zlib.compress(b'{"form":"state/9"}'), CODEC, "row 7: .*expected 'state/1'"),
    ],
)
def test_what_is_damaged_is_said_with_its_row(packed: bytes, codec: int, says: str) -> None:
    with pytest.raises(Damaged, match=says):
        unpack(State, packed, codec, "row 7")


def test_a_form_that_unpacks_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.adapters.sql.codec.LARGEST", 1_000)
    with pytest.raises(Damaged, match="larger than 1000 bytes"):
        unpack(State, zlib.compress(b"0" * 1_000_000), CODEC, "row 7")


def test_pages_follow_one_another_without_gap_or_repeat(record: Record) -> None:
    write(record, 6)
    everything = record.reader.decisions(Filter(), 100)
    paged: list[Listed] = []
    last: tuple[float, DecisionId] | None = None
    while page := record.reader.decisions(Filter(), 2, last):
        paged += page
        last = (page[-1].at, page[-1].id)
    assert [each.id for each in paged] == [each.id for each in everything]
    assert len(everything) == 6


def test_a_folder_that_cannot_be_made_is_a_mistake_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="cannot be made"):
        open_engine(f"sqlite:///{tmp_path / 'file' / 'trimtab.db'}")


def test_a_number_beyond_the_database_is_told_in_words(record: Record) -> None:
    with pytest.raises(Unavailable, match="too large"):
        record.reader.decision(DecisionId.parse(f"demo:weights:{10**30}:chat-8b"))


@pytest.mark.parametrize("command", [["decisions", "list"], ["explain", "demo:weights:1"]])
def test_a_damaged_row_is_one_sentence(url: str, record: Record, command: list[str]) -> None:
    write(record, 2)
    with writing(record.engine) as session:
        session.execute(text("PRAGMA ignore_check_constraints = 1"))
        session.execute(text("UPDATE decisions SET mode = 'x'"))
    told = CliRunner().invoke(main, [*command, "--database", url])
    assert told.exit_code == 1
    assert told.output.startswith("Error: the record is damaged: ")


def test_an_instant_beyond_the_calendar_is_shown_all_the_same(url: str, record: Record) -> None:
    write(record, 2)
    with writing(record.engine) as session:
        session.execute(text("UPDATE decisions SET decided_at = 9223372036854775807"))
    told = CliRunner().invoke(main, ["decisions", "list", "--database", url])
    assert (told.exit_code, "9223372036855 s" in told.output) == (0, True)


@pytest.mark.parametrize("since", ["99999999999d", "\N{SUPERSCRIPT TWO}d"])
def test_a_time_out_of_all_bounds_is_a_usage_error(url: str, record: Record, since: str) -> None:
    told = CliRunner().invoke(main, ["decisions", "list", "--since", since, "--database", url])
    assert (told.exit_code, "is no time" in told.output) == (2, True)
