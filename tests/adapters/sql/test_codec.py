"""How values lie in the database: they come back as they were, and damage is said with its row."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from controlplane.adapters.sql.codec import CODEC, Damaged, Instant, micros, pack, unpack
from controlplane.domain.state import State

MICROSECONDS_UNTIL_2200 = 7_258_118_400_000_000


def test_a_value_comes_back_as_it_was_packed() -> None:
    assert unpack(State, pack(State()), CODEC, "here") == State()


@pytest.mark.parametrize(
    ("packed", "codec", "says"),
    [
        (pack(State()), 99, "row 7: written with codec 99"),
        (pack(State())[:-4], CODEC, "row 7: the stored form is cut"),
        (b"not zlib", CODEC, "row 7: "),
        (b"", CODEC, "row 7: the stored form is cut"),
        (zlib.compress(b"\xff"), CODEC, "row 7: "),
        (zlib.compress(b'{"form":"state/9"}'), CODEC, "row 7: .*expected 'state/3'"),
    ],
)
def test_what_is_damaged_is_said_with_its_row(packed: bytes, codec: int, says: str) -> None:
    with pytest.raises(Damaged, match=says):
        unpack(State, packed, codec, "row 7")


def test_a_form_that_unpacks_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.adapters.sql.codec.LARGEST", 1_000)
    with pytest.raises(Damaged, match="larger than 1000 bytes"):
        unpack(State, zlib.compress(b"0" * 1_000_000), CODEC, "row 7")


@given(st.integers(0, MICROSECONDS_UNTIL_2200))
def test_an_instant_keeps_its_microsecond(stored: int) -> None:
    column, dialect = Instant(), sqlite.dialect()
    seconds = column.process_result_value(stored, dialect)
    assert column.process_bind_param(seconds, dialect) == stored


def test_no_instant_is_no_instant_and_never_the_epoch() -> None:
    column, dialect = Instant(), sqlite.dialect()
    assert column.process_bind_param(None, dialect) is None
    assert column.process_result_value(None, dialect) is None
    assert micros(0.0000004) == 0
