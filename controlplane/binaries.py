"""Where the servers beside us are: unpacked by `make setup`, or on the machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.ports import InvalidConfig

PURPOSE: Mapping[str, str] = {
    "prometheus": "scrapes the engines and answers the loop's queries",
    "promtool": "checks and tests the recording rules",
    "haproxy": "is the gateway",
    "prometheus-alertmanager": "groups alerts and sends them as pages",
    "amtool": "checks Alertmanager's configuration",
}
"""The binaries we start, and what for."""


def find(name: str, folders: Sequence[Path] | None = None) -> Path:
    """The binary `name`: from `.tools/bin` beside the virtual environment or the checkout, then PATH.

    Raises InvalidConfig, naming what it is for and what to do, where it is nowhere.
    """
    looked = [str(folder) for folder in (_folders() if folders is None else folders)]
    found = shutil.which(name, path=os.pathsep.join(looked))
    if found is None:
        purpose = PURPOSE.get(name, "is needed")
        raise InvalidConfig(
            [f"{name} (it {purpose}) is not here; run `make setup`. Looked in: {', '.join(looked)}"]
        )
    return Path(found)


def _folders() -> list[Path]:
    checkout = Path(__file__).resolve().parents[1]
    ours = [Path(sys.prefix).parent / ".tools/bin", checkout / ".tools/bin"]
    on_path = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    return list(dict.fromkeys([*ours, *on_path, Path("/usr/sbin"), Path("/sbin")]))
