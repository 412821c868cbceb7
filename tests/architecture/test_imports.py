"""Who may import whom, and how long a function may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FUNCTION = 60
FOLDERS = ("alerts", "controlplane", "migrations", "tests")
SOURCES = [
    *(
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parent.name != "versions"  # a migration is one list of statements, written once
    ),
    ROOT / "scripts/setup",
]


def test_import_directions_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_too_long_to_hold_in_mind(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert [f"{f.name}: {length(f)} lines" for f in functions(tree) if length(f) > LONGEST_FUNCTION] == []


def test_the_rule_would_see_a_long_function() -> None:
    body = "\n".join(["    x = 1"] * LONGEST_FUNCTION)
    assert [length(f) for f in functions(ast.parse(f"def f():\n{body}\n"))] == [LONGEST_FUNCTION + 1]
