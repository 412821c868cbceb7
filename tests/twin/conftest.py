"""One twin for the whole run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.twin.world import Twin, twin_running


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    log = tmp_path_factory.mktemp("twin") / "twin.log"
    with twin_running(log) as (started, process):
        yield started
    assert process.returncode == 0
    said = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [f"127.0.0.1:{line['control']}" for line in said] == [started.control]
