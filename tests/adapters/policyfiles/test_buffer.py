"""The buffer's own file: what it keeps back, and every mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane import forms
from controlplane.adapters.policyfiles.source import PolicyDirectory
from controlplane.domain.policy import BufferPolicy, Policies
from controlplane.ports import InvalidConfig
from tests.adapters.policyfiles.files import POLICY, changed, house

BUFFER: dict[str, object] = {"pool": "buffer", "kind": "buffer", "reserve": 8, "reserve_priority": 80}


def load(tmp_path: Path, **files: dict[str, object] | str) -> Policies:
    return PolicyDirectory(*house(tmp_path, chat=POLICY, **files)).load()


def refusals(tmp_path: Path, **files: dict[str, object] | str) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, **files)
    return [each.removeprefix(f"{tmp_path / 'policies'}/") for each in caught.value.problems]


def test_the_buffer_keeps_back_what_its_file_says_and_is_no_pool(tmp_path: Path) -> None:
    assert load(tmp_path / "without").buffer == BufferPolicy(reserve=0, reserve_priority=100)
    policies = load(tmp_path / "with", buffer=BUFFER)
    assert policies.buffer == BufferPolicy(reserve=8, reserve_priority=80)
    assert list(policies.pools) == ["chat"]


def test_what_the_buffer_keeps_back_is_part_of_the_version_and_of_the_record(tmp_path: Path) -> None:
    policies = load(tmp_path / "a", buffer=BUFFER)
    other = load(tmp_path / "b", buffer=changed(BUFFER, {"reserve": 9}))
    assert other.version.content_hash != policies.version.content_hash
    assert forms.from_json(Policies, forms.to_json(policies)).buffer == policies.buffer


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reserve": -1}, "buffer.yaml:3: reserve: -1, allowed: a whole number 0..100000"),
        ({"reserve": "8"}, "buffer.yaml:3: reserve: 8, allowed: a whole number 0..100000"),
        ({"reserve_priority": 101}, "buffer.yaml:4: reserve_priority: 101, allowed: a whole number 0..100"),
        ({"pool": "spare"}, "buffer.yaml:2: pool: spare, allowed: buffer, the name of its account"),
        ({"capacity": {"min": 1}}, "buffer.yaml:5: capacity: unknown key, allowed: kind, pool, reserve"),
        ({"command": "rm"}, "buffer.yaml:5: command: unknown key, allowed"),
    ],
)
def test_a_mistake_in_it_is_named_with_file_line_and_range(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    found = refusals(tmp_path, buffer=changed(BUFFER, change))
    assert len(found) == 1
    assert found[0].startswith(said)


def test_there_is_one_buffer(tmp_path: Path) -> None:
    found = refusals(tmp_path, buffer=BUFFER, spare=BUFFER)
    assert found == [
        f"spare.yaml:2: kind: buffer, which is described at {tmp_path / 'policies' / 'buffer.yaml'}:2 already"
    ]


def test_no_pool_takes_the_name_of_the_buffers_account(tmp_path: Path) -> None:
    found = refusals(tmp_path, other=changed(POLICY, {"pool": "buffer"}))
    assert found[0].startswith("other.yaml:5: pool: buffer, allowed: any other name")


def test_a_directory_with_nothing_but_the_buffer_holds_no_policy(tmp_path: Path) -> None:
    directory, profiles = house(tmp_path, buffer=BUFFER)
    with pytest.raises(InvalidConfig, match="holds no policy of a pool"):
        PolicyDirectory(directory, profiles).load()
