"""The server that tests start: there from one end of the run to the other, for nobody else, and then gone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psycopg
import pytest

from tests.postgres import TEMPLATE, Postgres


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_its_folder_belongs_to_whom_it_runs_as(postgres: Postgres) -> None:
    (postmaster, *_) = postgres.processes()
    assert postgres.folder.stat().st_uid == Path(f"/proc/{postmaster}").stat().st_uid
