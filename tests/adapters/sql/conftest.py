"""A record in a file of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.adapters.sql.open import Record, open_record


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'trimtab.db'}"


@pytest.fixture
def record(url: str) -> Iterator[Record]:
    opened = open_record(url, "demo", "demo", "run-1")
    yield opened
    opened.lease.release()
    opened.close()
