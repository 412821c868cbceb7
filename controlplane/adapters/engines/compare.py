"""Whether a rule file is what this version would render."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from controlplane.adapters.engines.rules import GROUP, recording_rules
from controlplane.adapters.engines.template import Helper, Level, Rendering, series_name
from controlplane.ports import InvalidConfig

_WINDOW = series_name(Helper.WINDOW, Level.RULES)
_VECTOR = re.compile(r"vector\(([0-9.e+]+)\)")
_INTERVAL = re.compile(r"([0-9]+)(ms|s)")


def compare(path: Path) -> tuple[str, ...]:
    """Every difference between a rule file and the rules for the window it says it has.

    Raises InvalidConfig where the file is no rule file of ours.
    """
    group = _group(path)
    found = {rule.get("record", ""): rule.get("expr", "") for rule in group.get("rules", [])}
    rendering = _rendering(path, group, found)
    wanted = {rule["record"]: rule["expr"] for rule in recording_rules(rendering)["groups"][0]["rules"]}
    missing = [f"{path}: {name} is missing" for name in wanted if name not in found]
    other = [f"{path}: {name} is not ours" for name in found if name not in wanted]
    changed = [
        f"{path}: {name} differs; this version renders: {wanted[name]}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    return (*missing, *changed, *other)


def _group(path: Path) -> Mapping[str, Any]:
    if path.is_fifo():  # opening one waits for a writer
        raise InvalidConfig([f"{path}: is a pipe, allowed: a file"])
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidConfig([f"{path}: no readable YAML ({type(error).__name__})"]) from None
    groups = content.get("groups") if isinstance(content, dict) else None
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, dict) and group.get("name") == GROUP:
            return group
    raise InvalidConfig([f"{path}: no rule group called {GROUP}"])


def _rendering(path: Path, group: Mapping[str, Any], found: Mapping[str, str]) -> Rendering:
    window = _VECTOR.fullmatch(str(found.get(_WINDOW, "")))
    interval = _INTERVAL.fullmatch(str(group.get("interval", "")))
    if window is None or interval is None:
        raise InvalidConfig([f"{path}: no {_WINDOW} rule or no interval that says what it was rendered for"])
    try:
        return Rendering(float(window[1]), int(interval[1]) * (0.001 if interval[2] == "ms" else 1.0))
    except ValueError as error:
        raise InvalidConfig([f"{path}: {error}"]) from None
