"""The kinds of single values that files may hold: read, bounded, and described in words.

Units stand in the value (`8s`, `0.30`, `40`), so a number can never be taken for a
percentage or for milliseconds. Each kind says what it allows in its error and in the
JSON Schema alike.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from controlplane.domain.ids import NAME

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_BEFORE_AT = re.compile(r"([a-z]+://)?.*@", re.DOTALL)
_QUERY = re.compile(r"(://[^?#]*)[?#].*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One kind of value. `read` raises ValueError where the value is not one of the kind.

    Annotate a field with it: `window: Annotated[float, duration("1s", "1h")]`. A `quiet` kind
    never shows the value in its error: a secret may have been written there by mistake.
    """

    read: Callable[[object], object]
    allowed: str
    schema: Mapping[str, object]
    quiet: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self,
        core: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> dict[str, object]:
        return dict(self.schema)

    def _checked(self, value: object) -> object:
        try:
            return self.read(value)
        except ValueError as error:
            said = f" ({error})" if str(error) else ""
            what = "the value" if self.quiet else shown(value)
            raise ValueError(f"{what}{said}, allowed: {self.allowed}") from None


def shown(value: object) -> str:
    """A value for an error message: short, and without what may be a secret in a URL."""
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = _QUERY.sub(r"\1?…", _BEFORE_AT.sub(r"\1…@", text))
    return text if len(text) <= 60 else f"{text[:57]}…"


def seconds(text: object) -> float:
    """`8s`, `90ms`, `1.5m`, `2h`, `7d` in seconds. Raises ValueError on anything else."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("no unit" if isinstance(text, int | float) else "")
    number, unit = float(found[1]), found[2]
    return number / 1000.0 if unit == "ms" else number * _SECONDS[unit]


def duration(low: str, high: str) -> Leaf:
    """A span of time from `low` to `high`, each written as it may be written."""

    def read(value: object) -> float:
        return _within(seconds(value), seconds(low), seconds(high))

    allowed = f"{low} to {high}, with the unit (ms, s, m, h, d), such as {low}"
    return Leaf(
        read, allowed, {"type": "string", "pattern": f"^{_DURATION.pattern}$", "description": allowed}
    )


def _within(value: float, low: float, high: float) -> float:
    if not low <= value <= high:  # false for NaN too
        raise ValueError
    return value


def number(low: float, high: float, what: str = "a number", example: str = "") -> Leaf:
    """A finite number from `low` to `high`; whole numbers are numbers too."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        return _within(float(value), low, high)

    allowed = f"{what} {low:g}..{high:g}" + (f", such as {example}" if example else "")
    return Leaf(read, allowed, {"type": "number", "minimum": low, "maximum": high, "description": allowed})


def ratio(low: float = 0.0, high: float = 1.0) -> Leaf:
    """A share. 50 is no share: percentages are refused, not guessed."""
    return number(low, high, "a ratio", f"{(low + high) / 2:.2f}")


def whole(low: int, high: int) -> Leaf:
    """A whole number from `low` to `high`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    allowed = f"a whole number {low}..{high}"
    return Leaf(read, allowed, {"type": "integer", "minimum": low, "maximum": high, "description": allowed})


def text(pattern: str, allowed: str, *, quiet: bool = False) -> Leaf:
    """Text that matches `pattern` as a whole."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError("" if isinstance(value, str | None) else "quote it to make it text")
        return value

    return Leaf(
        read, allowed, {"type": "string", "pattern": f"^(?:{pattern})$", "description": allowed}, quiet
    )


LABEL = text(NAME.pattern, "a DNS label: a-z, 0-9 and -, at most 63, such as chat-8b")
MODEL = text(
    r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}", "a model's name: letters, digits and . _ / : -, at most 128"
)
REFERENCE = text(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "a profile's name: letters, digits and . _ -, at most 128"
)
SENTENCE = text(r"[^\x00-\x1f]{1,500}", "one line of text, at most 500 characters")
VARIABLE = text(
    r"[A-Za-z_][A-Za-z0-9_]{0,127}",
    "the name of an environment variable, such as PROMETHEUS_TOKEN",
    quiet=True,
)


def word(kinds: type[StrEnum]) -> Leaf:
    """One of an enumeration's words."""
    words = [str(kind) for kind in kinds]

    def read(value: object) -> StrEnum:
        if value not in words:
            near = difflib.get_close_matches(str(value), words, n=1)
            raise ValueError(f"did you mean {near[0]}?" if near else "")
        return kinds(value)

    allowed = ", ".join(words)
    return Leaf(read, allowed, {"type": "string", "enum": words})


def _url(value: object) -> str:
    if "@" in str(value):
        raise ValueError("no user or password in a URL: name token_file, token_env or basic_auth_env instead")
    if not isinstance(value, str) or not _is_plain_url(value):
        raise ValueError("")
    return value.rstrip("/")


def _is_plain_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:  # its text quotes the URL
        return False
    well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
    return well_formed and not parts.query and not parts.fragment and not re.search(r"[\s\x00-\x1f]", value)


URL = Leaf(
    _url,
    "http:// or https:// with a host, no query and no user, such as http://127.0.0.1:9090",
    {"type": "string", "pattern": r"^https?://[^@?#\s]+$"},
)
