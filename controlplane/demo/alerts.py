"""The shipped alerts as a demonstration loads them: one of them, which fires sooner."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from controlplane.adapters.engines.template import duration

FILE = "pools.yaml"


def folder() -> Path:
    """Where the compiled rules are: shipped inside the package, or beside it in a checkout."""
    spec = find_spec("controlplane")
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - it is running
    package = Path(spec.origin).parent
    shipped = package / "_shipped" / "alerts"
    return shipped if shipped.is_dir() else package.parent / "alerts" / "compiled"


def shortened(name: str, held_s: float) -> str:
    """The shipped rule file of pools with its pages of one name only, each after `held_s` seconds.

    What it records stays as it is: the page reads it.
    """
    content = yaml.safe_load((folder() / FILE).read_text(encoding="utf-8"))
    for group in content["groups"]:
        group["rules"] = [_sooner(rule, held_s) for rule in group["rules"] if _stays(rule, name)]
    return yaml.safe_dump(content, sort_keys=False, width=4096, allow_unicode=True)


def _stays(rule: dict[str, Any], name: str) -> bool:
    return "record" in rule or (rule["alert"] == name and rule["labels"]["severity"] == "page")


def _sooner(rule: dict[str, Any], held_s: float) -> dict[str, Any]:
    return {**rule, "for": duration(held_s)} if "alert" in rule else rule
