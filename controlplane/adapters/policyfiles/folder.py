"""The YAML files of a directory, in a fixed order."""

from __future__ import annotations

from pathlib import Path

MAX_FILES = 1000


def each_file(directory: Path, problems: list[str]) -> list[Path]:
    """Paths of `*.yaml`, sorted by name; what is wrong with the directory goes to `problems`.

    Hidden ones do not count. A `.yml` is reported, and a `.yaml` that is no regular file (a FIFO would
    block for ever; a link may lead nowhere), because ignoring it in silence would drop a pool.
    """
    try:
        entries = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        problems.append(f"{directory}: cannot be read: {error.strerror}")
        return []
    problems += [f"{e}: is not read; rename it to {e.stem}.yaml" for e in entries if e.suffix == ".yml"]
    named = [entry for entry in entries if entry.suffix == ".yaml"]
    files = [entry for entry in named if entry.is_file()]
    others = sorted(set(named) - set(files))
    problems += [f"{e}: is not read; allowed: a plain file, or a link to one" for e in others]
    if len(files) > MAX_FILES:
        problems.append(f"{directory}: {len(files)} files, the most allowed is {MAX_FILES}")
    return files[:MAX_FILES]
