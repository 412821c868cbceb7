"""How values lie in the database: canonical JSON forms, compressed; times as whole microseconds.

The codec's number stands beside every body, so that another packing can come later without
touching what is stored; the forms carry their own versions inside.
"""

from __future__ import annotations

import zlib
from typing import TypeVar

from sqlalchemy import BigInteger
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from controlplane import forms
from controlplane.ports import PortError

CODEC = 1
"""1: zlib over the UTF-8 text of a form."""

MICROS = 1_000_000
LEVEL = 3
LARGEST = 256 << 20
"""No form is larger than this many bytes: what unpacks to more is damaged, or hostile."""

T = TypeVar("T")


class Damaged(PortError):
    """A stored value cannot be read: damaged, changed by somebody, or written by a newer version.
    The text says which and why."""


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


class Instant(TypeDecorator[float]):
    """An instant: epoch seconds in Python, UTC microseconds as an integer in the database.

    Integers have one meaning in every database; date types differ in zone and precision.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """To the database."""
        return None if value is None else micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        """From the database. Exact to the microsecond: a float64 tells them apart until 2242."""
        return None if value is None else value / MICROS
