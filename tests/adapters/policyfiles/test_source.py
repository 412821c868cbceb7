"""The directory as a whole: its version, its files, and where they come from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from controlplane.adapters.policyfiles.git import commit_of
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.ports import InvalidConfig, PolicySource
from tests.adapters.policyfiles.files import POLICY, PROFILE, changed, house, write


def content_hash(tmp_path: Path, **policies: dict[str, object] | str) -> str:
    directory, profiles = house(tmp_path, **policies)
    return PolicyDirectory(directory, profiles).load().version.content_hash


def test_a_directory_is_a_policy_source(tmp_path: Path) -> None:
    source: PolicySource = PolicyDirectory(*house(tmp_path))
    assert list(source.load().pools) == ["chat"]


def test_the_hash_covers_values_and_not_notation(tmp_path: Path) -> None:
    plain = content_hash(tmp_path / "a", chat=POLICY)
    notation = (
        "# hello\ncapacity: {max: 9, min: 2, target_utilisation: 0.80}\ntp: 1\nprofile: small-8b-tp1\n"
        "model: small-8b\npool: chat\nslo: {tpot_p95: 0.04s, ttft_p95: 0.8s}\n"
    )
    assert content_hash(tmp_path / "b", renamed=notation) == plain


@pytest.mark.parametrize(
    "change", [{"capacity.max": 10}, {"slo.window": "6m"}, {"mode.weights": "observe"}, {"limit": 8}]
)
def test_any_changed_value_changes_the_hash(tmp_path: Path, change: dict[str, object]) -> None:
    assert content_hash(tmp_path / "a", chat=changed(POLICY, change)) != content_hash(
        tmp_path / "b", chat=POLICY
    )


def test_a_changed_profile_changes_the_hash(tmp_path: Path) -> None:
    before = content_hash(tmp_path, chat=POLICY)
    write(tmp_path / "profiles", "small.yaml", changed(PROFILE, {"d0_ms": 6.5}))
    directory, profiles = tmp_path / "policies", tmp_path / "profiles"
    assert PolicyDirectory(directory, profiles).load().version.content_hash != before


def test_pools_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    named = {f"f{n}": changed(POLICY, {"pool": pool}) for n, pool in enumerate(("zeta", "alpha", "mid"))}
    directory, profiles = house(tmp_path, **named)
    assert list(PolicyDirectory(directory, profiles).load().pools) == ["alpha", "mid", "zeta"]


def test_an_empty_or_absent_directory_is_a_problem_and_not_a_fleet_without_pools(tmp_path: Path) -> None:
    _, profiles = house(tmp_path)
    (tmp_path / "empty").mkdir()
    for directory, said in ((tmp_path / "empty", "holds no policy"), (tmp_path / "absent", "cannot be read")):
        with pytest.raises(InvalidConfig, match=said):
            PolicyDirectory(directory, profiles).load()


def test_a_file_that_would_be_overlooked_is_a_problem(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    write(directory, "other.yml", POLICY)
    with pytest.raises(InvalidConfig, match=r"other\.yml: is not read; rename it to other\.yaml"):
        PolicyDirectory(directory, profiles).load()


STRANGE: Mapping[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "link": lambda entry: entry.symlink_to("nowhere"),
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_named_like_a_policy_and_is_no_file_is_a_problem(
    tmp_path: Path, kind: str, *, alone: bool
) -> None:
    """A pipe would block a reader for ever, and a link that leads nowhere is a pool that is gone."""
    directory, profiles = house(tmp_path)
    assert list(PolicyDirectory(directory, profiles).load().pools) == ["chat"]
    if alone:
        (directory / "chat.yaml").unlink()
    entry = directory / "other.yaml"
    STRANGE[kind](entry)
    with pytest.raises(InvalidConfig) as caught:
        PolicyDirectory(directory, profiles).load()
    assert caught.value.problems == (f"{entry}: is not read; allowed: a plain file, or a link to one",)


def test_hidden_files_and_other_kinds_are_passed_over_and_links_are_followed(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    write(directory, ".hidden.yaml", "x: [")
    write(directory, "schema.json", "{}")
    (directory / "chat.yaml").rename(tmp_path / "there")
    (directory / "chat.yaml").symlink_to(tmp_path / "there")
    assert list(PolicyDirectory(directory, profiles).load().pools) == ["chat"]


def test_a_wrong_profile_is_named_with_its_line(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    write(profiles, "small.yaml", changed(PROFILE, {"date": "yesterday", "source": ...}))
    with pytest.raises(InvalidConfig) as caught:
        PolicyDirectory(directory, profiles).load()
    said = "\n".join(caught.value.problems)
    assert "date: yesterday, allowed: a date such as 2026-01-31" in said
    assert "source: is required and missing" in said


def test_two_profiles_of_one_name_are_refused(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path)
    write(profiles, "twice.yaml", PROFILE)
    with pytest.raises(InvalidConfig, match="another file uses already"):
        PolicyDirectory(directory, profiles).load()


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, "-C", str(directory), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()


def test_the_commit_is_named_where_the_files_are_those_of_the_commit(tmp_path: Path) -> None:
    directory, _ = house(tmp_path)
    git(tmp_path, "init", "--quiet")
    assert commit_of(directory) == ""  # nothing is committed yet
    git(tmp_path, "add", "policies")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(directory) == head
    write(directory, "chat.yaml", changed(POLICY, {"capacity.max": 10}))
    assert commit_of(directory) == f"{head}-modified"


def test_files_that_git_ignores_are_not_those_of_the_commit(tmp_path: Path) -> None:
    directory, _ = house(tmp_path)
    git(tmp_path, "init", "--quiet")
    write(tmp_path, ".gitignore", "policies/\n")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    assert commit_of(directory).endswith("-modified")


def test_no_commit_is_named_outside_a_work_tree(tmp_path: Path) -> None:
    assert commit_of(house(tmp_path)[0]) == ""


def test_a_hook_of_the_checkout_does_not_run(tmp_path: Path) -> None:
    directory, _ = house(tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    write(tmp_path, "hook", "#!/bin/sh\ntouch ran\n").chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(tmp_path / "hook"))
    commit_of(directory)
    assert not list(tmp_path.rglob("ran"))
