"""Which commit a directory's content is from, so that a decision can be traced to its change."""

from __future__ import annotations

import subprocess
from pathlib import Path

TIMEOUT_S = 2.0
MODIFIED = "-modified"


def commit_of(directory: Path) -> str:
    """The commit checked out at `directory`; with `-modified` where its files differ from it or are
    not in it; empty where there is no commit or git does not answer in time."""
    commit = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return ""
    changes = _git(directory, "status", "--porcelain", "--ignored", "--", ".")
    return "" if changes is None else f"{commit}{MODIFIED}" if changes else commit


def _git(directory: Path, *arguments: str) -> str | None:
    """Git's answer, None where it fails. No hook of the checkout runs and no lock is taken."""
    command = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
