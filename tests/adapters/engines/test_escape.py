"""Values in PromQL: whatever they hold, they stay values (B-179)."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.engines.escape import any_of, matcher, quoted

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NASTY = ['chat"} or up{job=~".*', "a\nb", "back\\slash", "`tick`", "tab\t", "\x00", "é😀", "\x7f", "{}[]()"]


def ends_once(literal: str) -> bool:
    """Whether a Go string literal ends at its own last quote and at no earlier one."""
    return re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', literal) is not None


@given(TEXT)
def test_a_literal_holds_its_value_and_nothing_escapes_from_it(value: str) -> None:
    literal = quoted(value)
    assert ends_once(literal)
    assert json.loads(literal) == value


@pytest.mark.parametrize("value", NASTY)
def test_a_matcher_is_one_matcher(value: str) -> None:
    text = matcher("pool", "=", value)
    assert text.startswith('pool="')
    assert ends_once(text.removeprefix("pool="))


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_a_choice_matches_its_values_and_no_others(values: list[str], other: str) -> None:
    pattern = re.compile(any_of(values), re.DOTALL)
    assert all(pattern.fullmatch(value) for value in values)
    assert (pattern.fullmatch(other) is not None) == (other in values)


@pytest.mark.parametrize("label", ["", "1a", "a-b", "a b", 'a"', "ä", "a="])
def test_what_is_no_label_name_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="no label name"):
        matcher(label, "=", "x")
    assert matcher("a_1", "=", "x") == 'a_1="x"'


def test_an_unknown_operator_and_broken_text_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: ="):
        matcher("a", "==", "x")
    with pytest.raises(ValueError, match="valid Unicode"):
        quoted("\ud800")
