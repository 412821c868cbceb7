"""Where and with what a demonstration ran."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from controlplane import __version__
from controlplane.binaries import find


def surroundings() -> dict[str, object]:
    """Machine, date and versions."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "processor": _processor(), "memory_gib": _memory_gib()},
        "system": platform.platform(),
        "versions": {
            "trimtab": __version__,
            "python": platform.python_version(),
            "prometheus": _version([str(find("prometheus")), "--version"]),
            "haproxy": _version([str(find("haproxy")), "-v"]),
        },
    }


def _version(command: Sequence[str]) -> str | None:
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter((said.stdout or said.stderr).splitlines()), None)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
