"""Where servers are looked for, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.binaries import PURPOSE, find
from controlplane.ports import InvalidConfig


def program(folder: Path, name: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_the_first_folder_wins(tmp_path: Path) -> None:
    ours, theirs = program(tmp_path / "tools", "haproxy"), program(tmp_path / "path", "haproxy")
    assert find("haproxy", [ours.parent, theirs.parent]) == ours
    ours.unlink()
    assert find("haproxy", [ours.parent, theirs.parent]) == theirs


def test_what_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "tools", "haproxy", mode=0o644)
    assert (
        find("haproxy", [tmp_path / "tools", program(tmp_path / "path", "haproxy").parent]).parent.name
        == "path"
    )


@pytest.mark.parametrize("name", PURPOSE)
def test_a_missing_binary_says_what_it_is_for_and_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        find(name, [tmp_path])
    said = caught.value.problems[0]
    assert said.startswith(f"{name} (it {PURPOSE[name]})")
    assert "make setup" in said
    assert str(tmp_path) in said
