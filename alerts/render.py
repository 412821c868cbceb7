"""`python -m alerts.render [DIR]`: write the compiled rule files. They are committed; a test compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from alerts import recording
from alerts.lib import Alert, Recorded, group
from alerts.rules import capacity, loop, pools

COMPILED = Path(__file__).parent / "compiled"

_HEADER = "# Written by `python -m alerts.render` from alerts/rules/; change it there.\n"


def files() -> Mapping[str, str]:
    """Every compiled file by name."""
    return {
        "recording.yaml": recording.text(),
        "loop.yaml": _compiled("trimtab-loop", loop.ALERTS),
        "capacity.yaml": _compiled("trimtab-capacity", capacity.ALERTS),
        "pools.yaml": _compiled("trimtab-pools", (*pools.RECORDED, *pools.ALERTS)),
    }


def _compiled(name: str, rules: Sequence[Alert | Recorded]) -> str:
    return _HEADER + yaml.safe_dump(group(name, rules), sort_keys=False, width=200, allow_unicode=True)


def main(directory: Path = COMPILED) -> None:
    """Write them all."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
