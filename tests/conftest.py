"""Fixtures for every test. Helpers that are plain functions live in `tests/support.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres import postgres
from tests.support import SHARED, TOOLS

__all__ = ["postgres"]

os.environ["PATH"] = (
    f"{TOOLS}{os.pathsep}{os.environ['PATH']}"  # what `make setup` unpacked counts as present
)

settings.register_profile("house", deadline=None)  # two busy cores: a slow example is no failure
settings.load_profile("house")


@pytest.fixture
def shared() -> Path:
    """The reference data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"the reference data is not beside this checkout ({SHARED})")
    return SHARED
