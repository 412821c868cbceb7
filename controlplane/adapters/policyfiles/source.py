"""A directory of policy files as the port's `PolicySource`.

One wrong file refuses the whole directory: half of an intended change may be worse than
none of it. The caller keeps the last good policies in force and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from controlplane.adapters.policyfiles import checks, document
from controlplane.adapters.policyfiles.bufferfile import BufferFile, is_buffer
from controlplane.adapters.policyfiles.document import Document
from controlplane.adapters.policyfiles.folder import each_file
from controlplane.adapters.policyfiles.git import commit_of
from controlplane.adapters.policyfiles.policyfile import PolicyFile
from controlplane.adapters.policyfiles.profilefile import load_profiles
from controlplane.adapters.policyfiles.shape import shaped
from controlplane.domain.ids import PoolName
from controlplane.domain.policy import BufferPolicy, Policies, PolicyVersion, PoolPolicy
from controlplane.domain.profile import Profile
from controlplane.ports import InvalidConfig


@dataclass(frozen=True, slots=True)
class PolicyDirectory:
    """Policies from `directory`, with profiles from `profiles` (None: the shipped ones).

    `scrape_interval_s` (from the fleet file; None: unknown) is what windows are checked against.
    """

    directory: Path
    profiles: Path | None = None
    scrape_interval_s: float | None = None

    def load(self) -> Policies:
        """All pools' policies, valid. Raises InvalidConfig with every problem of every file."""
        return self.check()[0]

    def check(self) -> tuple[Policies, tuple[str, ...]]:
        """As `load`, with the warnings."""
        problems: list[str] = []
        around = checks.Surroundings(self._profiles(problems), self.scrape_interval_s)
        buffers, pools = _sorted_out(_read(self.directory, problems))
        buffer = _buffer(buffers, problems)
        parsed = _parse(pools, problems)
        if buffers and not pools:
            problems.append(
                f"{self.directory}: holds no policy of a pool; one is a file such as chat-8b.yaml"
            )
        problems += checks.errors(parsed, around)
        if problems:
            raise InvalidConfig(problems)
        values = [each.file.value() for each in parsed]
        policies = _versioned(values, around.profiles, buffer, commit_of(self.directory))
        return policies, tuple(checks.warnings(parsed, around))

    def _profiles(self, problems: list[str]) -> Mapping[str, Profile]:
        try:
            return load_profiles(self.profiles)
        except InvalidConfig as error:
            problems += error.problems
            return {}


def _read(directory: Path, problems: list[str]) -> list[Document]:
    files = each_file(directory, problems)
    if not files and not problems:
        problems.append(f"{directory}: holds no policy; one is a file such as chat-8b.yaml")
    found: list[Document] = []
    for path in files:
        try:
            found.append(document.read(path))
        except InvalidConfig as error:
            problems += error.problems
    return found


def _sorted_out(found: list[Document]) -> tuple[list[Document], list[Document]]:
    """The buffer's files, and the pools'."""
    return [each for each in found if is_buffer(each)], [each for each in found if not is_buffer(each)]


def _buffer(found: list[Document], problems: list[str]) -> BufferPolicy:
    """The buffer's policy; that of a fleet whose buffer keeps nothing back where no file says otherwise."""
    for again in found[1:]:
        where = f"{found[0].path}:{found[0].line(('kind',))}"
        problems.append(again.problem(("kind",), f"buffer, which is described at {where} already"))
    try:
        return shaped(found[0], BufferFile).value() if found else BufferPolicy()
    except InvalidConfig as error:
        problems += error.problems
        return BufferPolicy()


def _parse(found: list[Document], problems: list[str]) -> list[checks.Parsed]:
    parsed: list[checks.Parsed] = []
    for each in found:
        try:
            parsed.append(checks.Parsed(each, shaped(each, PolicyFile)))
        except InvalidConfig as error:
            problems += error.problems
    return parsed


def _versioned(
    pools: list[PoolPolicy], profiles: Mapping[str, Profile], buffer: BufferPolicy, commit: str
) -> Policies:
    """Policies under their version; the hash covers values, not comments, order or notation."""
    ordered = {each.pool: each for each in sorted(pools, key=lambda each: each.pool)}
    named = {name: profiles[name] for name in sorted({each.profile for each in pools})}
    version = PolicyVersion(commit, _content_hash(ordered, named, buffer))
    return Policies(version, ordered, named, buffer)


def _content_hash(
    pools: Mapping[PoolName, PoolPolicy], profiles: Mapping[str, Profile], buffer: BufferPolicy
) -> str:
    content = {
        "pools": {name: asdict(each) for name, each in pools.items()},
        "profiles": {name: asdict(each) for name, each in profiles.items()},
        "buffer": asdict(buffer),
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
