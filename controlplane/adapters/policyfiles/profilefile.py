"""Profile files: what one instance of (engine, model, GPU, tp) carries, with source and date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from controlplane import profiles
from controlplane.adapters.policyfiles import document
from controlplane.adapters.policyfiles.folder import each_file
from controlplane.adapters.policyfiles.leaves import (
    LABEL,
    MODEL,
    REFERENCE,
    SENTENCE,
    number,
    text,
    whole,
    word,
)
from controlplane.adapters.policyfiles.shape import Closed, shaped
from controlplane.domain.profile import Grade, Profile
from controlplane.ports import InvalidConfig

SHIPPED = Path(profiles.__file__).parent
"""The profiles that come with the product."""

_DATE = text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date such as 2026-01-31")


class ProfileFile(Closed):
    """Keys carry their unit, as in `Profile`: `_ms` milliseconds, `_s` seconds, `_tokens` tokens."""

    name: Annotated[str, REFERENCE]
    engine: Annotated[str, LABEL]
    model: Annotated[str, MODEL]
    gpu: Annotated[str, MODEL]
    tp: Annotated[int, whole(1, 64)]
    d0_ms: Annotated[float, number(0.01, 10_000)]
    d1_ms: Annotated[float, number(0, 100)]
    d2_ms: Annotated[float, number(0, 1)]
    p1_ms: Annotated[float, number(0, 1000)]
    f: Annotated[float, number(0.1, 10)]
    ttft_overhead_ms: Annotated[float, number(0, 60_000)]
    kv_tokens: Annotated[int, whole(1, 10**9)]
    max_num_seqs: Annotated[int, whole(1, 65_536)]
    water_level: Annotated[int, whole(1, 65_536)]
    cold_start_p95_s: Annotated[float, number(0, 86_400)]
    wake_s: Annotated[float, number(0, 86_400)]
    source: Annotated[str, SENTENCE]
    date: Annotated[str, _DATE]
    grade: Annotated[Grade, word(Grade)]

    def value(self) -> Profile:
        """The domain's value of the file: fields and names are the same."""
        return Profile(**dict(self))


def load_profiles(directory: Path | None = None) -> Mapping[str, Profile]:
    """All profiles of a directory (by default the shipped ones), by name.

    Raises InvalidConfig with the problems of all files.
    """
    problems: list[str] = []
    found: dict[str, Profile] = {}
    for path in each_file(directory or SHIPPED, problems):
        try:
            read = document.read(path)
            profile = shaped(read, ProfileFile).value()
        except InvalidConfig as error:
            problems += error.problems
            continue
        if profile.name in found:
            problems.append(read.problem(("name",), f"{profile.name}, a name that another file uses already"))
        found[profile.name] = profile
    if problems:
        raise InvalidConfig(problems)
    return found
