"""The server that tests start: there from one end of the run to the other, for nobody else, and then gone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from tests.postgres import TEMPLATE, CannotRun, Postgres, binaries, runs, unprivileged


def test_it_listens_on_a_unix_socket_alone(postgres: Postgres) -> None:
    assert postgres.run("SHOW listen_addresses") == [("",)]
    assert stat.S_ISSOCK((postgres.folder / ".s.PGSQL.5432").stat().st_mode)


def test_it_does_not_run_as_root(postgres: Postgres) -> None:
    (postmaster, *_) = postgres.processes()
    assert Path(f"/proc/{postmaster}").stat().st_uid != 0


def test_each_test_has_a_database_of_its_own_with_all_tables(postgres: Postgres) -> None:
    first, second = postgres.create(TEMPLATE), postgres.create(TEMPLATE)
    try:
        postgres.run("INSERT INTO runs VALUES ('demo', 'r', 'live', 'x', 0)", first)
        assert postgres.run("SELECT count(*) FROM runs", first) == [(1,)]
        assert postgres.run("SELECT count(*) FROM runs", second) == [(0,)]
    finally:
        postgres.drop(first)
        postgres.drop(second)


def test_stopped_it_is_gone_and_started_again_it_has_what_it_had(postgres: Postgres) -> None:
    name = postgres.create(TEMPLATE)
    (pid, *_) = postgres.processes()
    try:
        postgres.stop()
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(psycopg.OperationalError):
            postgres.run("SELECT 1")
    finally:
        postgres.start()
    assert postgres.run("SELECT count(*) FROM runs", name) == [(0,)]
    postgres.drop(name)


as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root is refused by PostgreSQL, and may be others"
)


@as_root
def test_its_folder_belongs_to_whom_it_runs_as(postgres: Postgres) -> None:
    (postmaster, *_) = postgres.processes()
    assert postgres.folder.stat().st_uid == Path(f"/proc/{postmaster}").stat().st_uid


def unpacked(checkout: Path, *, whole: bool) -> Path:
    """A checkout that nobody else may enter, with stand-ins for what `make setup` unpacks there."""
    tools = checkout / ".tools/bin"
    tools.mkdir(parents=True)
    checkout.chmod(0o700)
    real = checkout / ".tools/root/usr/lib/postgresql/real"
    if whole:
        real.parent.mkdir(parents=True)
        real.write_text("#!/bin/sh\nexit 0\n")
        real.chmod(0o755)
    for name in ("postgres", "initdb"):
        (tools / name).write_text('#!/bin/sh\nexec "$(dirname "$0")/../root/usr/lib/postgresql/real"\n')
        (tools / name).chmod(0o755)
    return tools


@pytest.fixture
def given_away() -> Iterator[Path]:
    """A folder that belongs to whom the server runs as."""
    user = unprivileged()
    assert user is not None
    with TemporaryDirectory() as folder:
        os.chown(folder, user.pw_uid, user.pw_gid)
        yield Path(folder)


@as_root
def test_in_a_checkout_that_only_root_may_enter_it_runs_from_links_to_what_is_unpacked_there(
    tmp_path: Path, given_away: Path
) -> None:
    user, tools = unprivileged(), unpacked(tmp_path / "home", whole=True)
    assert runs(tools / "postgres", None)
    assert not runs(tools / "postgres", user)
    found = binaries(user, given_away, tools)
    assert found == (given_away / "bin/postgres", given_away / "bin/initdb")
    assert all(runs(each, user) for each in found)


@as_root
def test_where_it_cannot_run_at_all_the_reason_names_who_tried(tmp_path: Path, given_away: Path) -> None:
    user, tools = unprivileged(), unpacked(tmp_path / "home", whole=False)
    assert user is not None
    with pytest.raises(CannotRun, match=f"does not run as user {user.pw_name}"):
        binaries(user, given_away, tools)
