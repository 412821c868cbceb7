"""The one place where a value becomes part of a PromQL text (B-179)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPERATORS = ("=", "!=", "=~", "!~")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


def quoted(value: str) -> str:
    """A PromQL string literal that holds exactly `value`, whatever is in it.

    JSON's escapes are a subset of Go's, except for surrogate pairs: text is therefore kept
    as UTF-8. A lone surrogate is no text and raises ValueError.
    """
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{value!r}: a label value has to be valid Unicode") from None
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def matcher(label: str, operator: str, value: str) -> str:
    """`label="value"`. Raises ValueError for a label or an operator that is none."""
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} is no label name; allowed: letters, digits and _, no digit first")
    if operator not in _OPERATORS:
        raise ValueError(f"{operator!r} is no matching operator; allowed: {', '.join(_OPERATORS)}")
    return f"{label}{operator}{quoted(value)}"


def any_of(values: Iterable[str]) -> str:
    """A regular expression (RE2) that matches exactly these values."""
    return "|".join(_SPECIAL.sub(r"\\\1", value) for value in values)
