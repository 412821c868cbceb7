"""Policy, profile and fleet files that tests start from and change."""

from __future__ import annotations

from pathlib import Path

import yaml

POLICY: dict[str, object] = {
    "pool": "chat",
    "model": "small-8b",
    "profile": "small-8b-tp1",
    "tp": 1,
    "slo": {"ttft_p95": "800ms", "tpot_p95": "40ms"},
    "capacity": {"min": 2, "max": 9},
}

PROFILE: dict[str, object] = {
    "name": "small-8b-tp1",
    "engine": "vllm",
    "model": "small-8b",
    "gpu": "h100",
    "tp": 1,
    "d0_ms": 6.4,
    "d1_ms": 0.012,
    "d2_ms": 0.00004,
    "p1_ms": 0.0175,
    "f": 1.08,
    "ttft_overhead_ms": 22,
    "kv_tokens": 420900,
    "max_num_seqs": 256,
    "water_level": 64,
    "cold_start_p95_s": 90,
    "wake_s": 4,
    "source": "made for tests",
    "date": "2026-01-01",
    "grade": "modelled",
}


def changed(base: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """`base` with dotted keys set: `{"capacity.min": 7}`. A value of `...` removes the key."""
    out: dict[str, object] = yaml.safe_load(yaml.safe_dump(base))
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        part = out
        for section in sections:
            inner = part.setdefault(section, {})
            assert isinstance(inner, dict)
            part = inner
        if value is ...:
            del part[last]
        else:
            part[last] = value
    return out


def write(directory: Path, name: str, content: dict[str, object] | str) -> Path:
    """Put a file there at once, so that whoever follows the directory never sees half of it."""
    directory.mkdir(parents=True, exist_ok=True)
    path, new = directory / name, directory.parent / f".{name}.new"
    new.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), "utf-8")
    return new.replace(path)


def house(tmp_path: Path, **policies: dict[str, object] | str) -> tuple[Path, Path]:
    """A policies directory (one file a keyword, `_` for `-`) and a profiles directory."""
    for name, content in (policies or {"chat": POLICY}).items():
        write(tmp_path / "policies", f"{name.replace('_', '-')}.yaml", content)
    write(tmp_path / "profiles", "small.yaml", PROFILE)
    return tmp_path / "policies", tmp_path / "profiles"
