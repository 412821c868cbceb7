"""One controller a record, by a lock that the kernel gives back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.adapters.sql.lease import FileLease
from controlplane.adapters.sql.open import open_record
from controlplane.ports import Unavailable
from tests.support import eventually

LEADER = """
import sys, time
from pathlib import Path
from controlplane.adapters.sql.lease import FileLease
lease = FileLease(Path(sys.argv[1]))
print(lease.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(file: Path) -> subprocess.Popen[str]:
    """Another process that leads the same record."""
    file.parent.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill it by its own pid, and wait."""
    process.kill()
    process.communicate(timeout=20)


def test_a_second_controller_is_told_who_leads_and_touches_nothing(
    file_url: str, file: Path, other: subprocess.Popen[str]
) -> None:
    try:
        with pytest.raises(Unavailable, match=f"process {other.pid}"):
            open_record(file_url, "demo")
        assert not file.exists(), "it did not migrate under the first one's feet"
    finally:
        end(other)


def test_a_crash_gives_the_lead_back(file: Path, other: subprocess.Popen[str]) -> None:
    lease = FileLease(file)
    try:
        assert not lease.acquire()
        os.kill(other.pid, signal.SIGKILL)
        assert eventually(lease.acquire, 10.0, because="the kernel releases a dead process' lock")
    finally:
        end(other)
        lease.release()


def test_within_one_process_two_leases_exclude_each_other_until_release(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "a.db"), FileLease(tmp_path / "a.db")
    assert first.acquire()
    assert first.acquire(), "asking again changes nothing"
    assert not second.acquire()
    assert (first.held(), second.held()) == (True, False)
    assert second.holder() == str(os.getpid())
    first.release()
    assert not first.held()
    assert second.acquire()
    second.release()


def test_a_lock_file_that_somebody_removed_or_replaced_is_a_lead_lost(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "a.db")
    assert lease.acquire()
    assert lease.held()
    lock = tmp_path / "a.db.lock"
    lock.unlink()
    assert not lease.held()
    lock.write_text("1\n")
    assert not lease.held(), "another file is another lock"
    lease.release()


def test_a_folder_that_does_not_exist_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        FileLease(tmp_path / "nowhere" / "a.db").acquire()
