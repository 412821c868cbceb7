"""The demonstration as a process, and what is left of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from controlplane.binaries import find
from controlplane.ports import InvalidConfig

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("prometheus", "haproxy", "prometheus-alertmanager")
LENGTH_S = 120
DEMO = [sys.executable, "-m", "controlplane", "demo", "--no-view", "--for", str(LENGTH_S)]


def _here(name: str) -> bool:
    try:
        find(name)
    except InvalidConfig:
        return False
    return True


needs_servers = pytest.mark.skipif(not (all(map(_here, NEEDED))), reason=f"not here: one of {NEEDED}")


def mentions(folder: Path) -> list[str]:
    """Command lines of running processes that name a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it ended meanwhile
            continue
        if str(folder) in line and each.parent.name != str(os.getpid()):
            found.append(line)
    return found
