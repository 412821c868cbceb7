"""YAML text to plain data that still knows on which line everything stood.

Plain scalars follow YAML 1.2's core: `10:30`, `yes` and `010` are text and not 630,
true and 8, so a value means what its reader sees. Nothing is ever constructed from a
tag. Size, depth and the number of values (aliases expanded) are bounded, because a
policy may come from a stranger's pull request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from controlplane.ports import InvalidConfig

MAX_BYTES = 64 * 1024
MAX_VALUES = 2000
MAX_DEPTH = 12

Loc = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\.[0-9]{1,30}([eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_QUOTED = re.compile(r"(alias|anchor|tag|tag handle) '[^']*'")
_PLAIN_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


@dataclass(frozen=True, slots=True)
class Document:
    """One file's data (`value`) with the line (from 1) of every value in it."""

    path: Path
    value: object
    lines: Mapping[Loc, int]

    def line(self, loc: Loc) -> int:
        """The line of `loc`, or of what encloses it where it is absent."""
        return next((self.lines[loc[:n]] for n in range(len(loc), 0, -1) if loc[:n] in self.lines), 1)

    def problem(self, loc: Loc, text: str) -> str:
        """`file:line: key.key: text`."""
        where = ".".join(str(part) for part in loc)
        return f"{self.path}:{self.line(loc)}: {one_line(f'{where}: ' if where else '')}{one_line(text)}"


def one_line(text: str) -> str:
    """As one line for any terminal: a stranger's file must not write lines or colours of its own there."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def read(path: Path) -> Document:
    """Read a file. Raises InvalidConfig, with every problem, where it cannot be used."""
    try:
        if path.is_fifo():  # opening one waits for a writer, and no signal ends that
            raise InvalidConfig([f"{path}: cannot be read: is a pipe, allowed: a file"])
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise InvalidConfig([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidConfig([f"{path}:{line}: is not UTF-8 text"]) from None
    if len(raw) > MAX_BYTES:
        raise InvalidConfig([f"{path}: larger than {MAX_BYTES // 1024} KiB, which is the most allowed"])
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """Read YAML text. Raises InvalidConfig; messages never quote the text (it may hold a secret)."""
    node = _compose(text, path)
    if node is None:
        raise InvalidConfig([f"{path}:1: the file is empty"])
    walk = _Walk(path)
    value = walk.value(node, (), 0)
    if walk.problems:
        raise InvalidConfig(walk.problems)
    return Document(path, value, walk.lines)


def _compose(text: str, path: Path) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        said = _QUOTED.sub(r"\1", error.problem or error.context or "")
        raise InvalidConfig([f"{path}:{line}: not valid YAML: {said}"]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidConfig([f"{path}:{line}: a character that YAML does not allow"]) from None
    except RecursionError:
        raise InvalidConfig([f"{path}: nested deeper than {MAX_DEPTH}, which is the most allowed"]) from None
    return node


class _TooMuch(Exception):
    """A bound was reached: nothing further is read of this file."""


@dataclass(slots=True)
class _Walk:
    """Turns nodes into data, collecting lines and problems on the way."""

    path: Path
    lines: dict[Loc, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    values: int = 0

    def value(self, node: yaml.Node, loc: Loc, depth: int) -> object:
        self.lines.setdefault(loc, node.start_mark.line + 1)
        try:
            self._bound(node, depth)
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, loc, depth)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*loc, n), depth + 1) for n, item in enumerate(node.value)]
            return _scalar(str(node.value), plain=isinstance(node, yaml.ScalarNode) and node.style is None)
        except _TooMuch:
            if depth:
                raise
            return None

    def _bound(self, node: yaml.Node, depth: int) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            self._report(node, f"more than {MAX_VALUES} values (aliases expanded), which is the most allowed")
            raise _TooMuch
        if depth > MAX_DEPTH:
            self._report(node, f"nested deeper than {MAX_DEPTH}, which is the most allowed")
            raise _TooMuch
        if node.tag not in _PLAIN_TAGS:
            self._report(node, "a tag (a word after !) is not allowed; write the plain value")

    def _mapping(self, node: yaml.MappingNode, loc: Loc, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in found:
                first = self.lines[(*loc, key)]
                self._report(key_node, f"{key}: stands twice, first on line {first}")
                continue
            self.lines[(*loc, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*loc, key), depth + 1)
        return found

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._report(node, "a key must be a plain word")
        return "?"

    def _report(self, node: yaml.Node, text: str) -> None:
        self.problems.append(f"{self.path}:{node.start_mark.line + 1}: {one_line(text)}")


def _scalar(text: str, *, plain: bool) -> object:
    """A scalar's value; quoted and block scalars are text, whatever they look like."""
    if plain and text in _WORDS:
        return _WORDS[text]
    if plain and _INT.fullmatch(text):
        return int(text)
    return float(text) if plain and _FLOAT.fullmatch(text) else text
