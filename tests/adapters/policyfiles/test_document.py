"""YAML text to data with lines: what stands in the file is what is read, within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.policyfiles import document
from controlplane.adapters.policyfiles.document import MAX_BYTES, MAX_DEPTH, MAX_VALUES, parse
from controlplane.ports import InvalidConfig

HERE = Path("p.yaml")


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as caught:
        parse(text, HERE)
    return caught.value.problems


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("10:30", "10:30"),
        ("18:00:00", "18:00:00"),
        ("09:30", "09:30"),
        ("yes", "yes"),
        ("no", "no"),
        ("off", "off"),
        ("010", "010"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2026-01-01", "2026-01-01"),
        ('"7"', "7"),
        ("7", 7),
        ("-7", -7),
        ("0.30", 0.3),
        ("1.5e3", 1500.0),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_a_scalar_means_what_its_reader_sees(written: str, value: object) -> None:
    """B-174: unquoted times of day are text, not numbers to the base of sixty; so are yes and 010."""
    found = parse(f"key: {written}", HERE).value
    assert found == {"key": value}
    assert isinstance(found, dict)
    assert type(found["key"]) is type(value)


def test_every_value_knows_its_line() -> None:
    read = parse("# head\na: 1\nb:\n  - 2\n  - c: 3\n", HERE)
    assert [read.line(loc) for loc in [("a",), ("b",), ("b", 0), ("b", 1, "c")]] == [2, 3, 4, 5]


def test_what_is_absent_is_placed_at_what_encloses_it() -> None:
    read = parse("a: 1\nb:\n  c: 2\n", HERE)
    assert read.line(("b", "missing")) == 2
    assert read.problem(("b", "missing"), "is gone") == "p.yaml:2: b.missing: is gone"


def test_a_key_that_stands_twice_is_an_error_with_both_lines() -> None:
    assert problems("a: 1\nb: 2\na: 3\n") == ("p.yaml:3: a: stands twice, first on line 1",)


def test_all_mistakes_of_a_file_come_at_once() -> None:
    assert len(problems("a: 1\na: 2\nb: !x 3\n? [c]\n: 4\n")) == 3


def test_aliases_are_followed() -> None:
    assert parse("a: &x {k: 1}\nb: *x\n", HERE).value == {"a": {"k": 1}, "b": {"k": 1}}


def test_an_alias_bomb_ends_at_the_bound_and_not_in_memory() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert str(MAX_VALUES) in problems("\n".join(lines))[0]


def test_an_alias_of_itself_ends_at_the_bound() -> None:
    assert str(MAX_DEPTH) in problems("a: &a\n  b: *a\n")[0]


def test_the_depth_just_allowed_is_read_and_one_more_is_not() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, HERE)
    assert str(MAX_DEPTH) in problems("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))[0]


def test_nesting_beyond_the_parser_itself_is_a_problem_and_no_crash() -> None:
    assert "nested deeper" in problems("[" * 20_000)[0]


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [id]", "!secret x", "!!int '3'", "!!binary aGk="]
)
def test_a_tag_constructs_nothing(tag: str) -> None:
    assert "tag" in problems(f"a: {tag}")[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1,\nb: 2", 2),
        ("a: 1\n\tb: 2", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: 1\nb: '\n", 3),
        ("", 1),
        ("# only\n", 1),
    ],
)
def test_broken_yaml_names_a_line(text: str, line: int) -> None:
    assert problems(text)[0].startswith(f"p.yaml:{line}: ")


def test_a_message_never_quotes_what_may_be_a_secret() -> None:
    """B-189: a password that looks like an alias, a tag or a broken string stays unsaid."""
    for text in (
        "password: *hunter2secret",
        "password: !hunter2secret x",
        "password: 'hunter2secret",
        "a: hunter2secret: x",
    ):
        assert "hunter2secret" not in "".join(problems(text))


def test_a_file_at_the_size_bound_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("a: 1\n".ljust(MAX_BYTES, "#"))
    assert document.read(path).value == {"a": 1}
    path.write_text("a: 1\n".ljust(MAX_BYTES + 1, "#"))
    with pytest.raises(InvalidConfig, match="64 KiB"):
        document.read(path)


def test_a_file_that_is_no_text_or_not_there_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidConfig, match=r"p\.yaml:2: is not UTF-8"):
        document.read(tmp_path / "p.yaml")
    with pytest.raises(InvalidConfig, match="No such file"):
        document.read(tmp_path / "absent.yaml")


def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidConfig, match=r"pipe\.yaml: cannot be read: is a pipe, allowed: a file"):
        document.read(tmp_path / "pipe.yaml")


def outcome(text: str) -> tuple[str, ...] | None:
    try:
        parse(text, HERE)
    except InvalidConfig as error:
        return error.problems
    return None


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    found = outcome(text)
    assert found is None or (found and all(problem.startswith("p.yaml") for problem in found))


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Z"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), _values, min_size=1, max_size=4))
def test_what_was_written_is_read_back(value: dict[str, object]) -> None:
    """Quoted wherever a reader of YAML 1.1 would have to quote: the round trip keeps every value."""
    assert parse(yaml.safe_dump(value, allow_unicode=True), HERE).value == value
