"""Dependencies are locked by hash, for all platforms, and the lock names no host."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
ENTRIES = [entry for entry in re.split(r"\n(?=[a-zA-Z0-9])", LOCK) if re.match(r"[a-zA-Z0-9]", entry)]
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("golang", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("conda", "anaconda", "org"),
    )
]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", each)[0].lower().replace("_", "-") for each in requirements}


def test_every_package_is_pinned_and_hashed() -> None:
    assert len(ENTRIES) > 30
    for entry in ENTRIES:
        assert re.match(r"[a-zA-Z0-9._-]+==\S+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_everything_that_is_declared_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    declared = names([*project["project"]["dependencies"], *project["dependency-groups"]["dev"]])
    assert declared - names(ENTRIES) == set()


def test_the_lock_sends_nobody_to_an_index() -> None:
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", LOCK)


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the reader's own setting, and differs from place to place."""
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in committed()
        if path.is_file()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]
    assert found == []
