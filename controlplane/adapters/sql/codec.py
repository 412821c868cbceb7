"""How values lie in the database: canonical JSON forms, compressed; times as whole microseconds."""

from __future__ import annotations

import zlib
from typing import TypeVar

from controlplane import forms

CODEC = 1
"""1: zlib over the UTF-8 text of a form. The forms carry their own versions inside."""

MICROS = 1_000_000
LEVEL = 3
LARGEST = 256 << 20
"""No form is larger than this many bytes: what unpacks to more is damaged, or hostile."""

T = TypeVar("T")


class Damaged(ValueError):
    """A stored value cannot be read; the text says which and why."""


def pack(value: object) -> bytes:
    """A value's form, compressed."""
    return zlib.compress(forms.to_json(value).encode(), LEVEL)


def unpack(cls: type[T], packed: bytes, codec: int, where: str) -> T:
    """The value again. `where` names the row in the error. Raises Damaged."""
    if codec != CODEC:
        raise Damaged(f"{where}: written with codec {codec}; this version reads {CODEC}")
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(packed, LARGEST)
        if inflate.unconsumed_tail or not inflate.eof:
            raise Damaged(f"{where}: the stored form is cut, or larger than {LARGEST} bytes")
        return forms.from_json(cls, text.decode())
    except (zlib.error, ValueError) as error:
        raise Damaged(f"{where}: {error}") from error


def micros(seconds: float) -> int:
    """Epoch seconds as whole microseconds."""
    return round(seconds * MICROS)


def seconds(stored: int) -> float:
    """Whole microseconds as epoch seconds."""
    return stored / MICROS
