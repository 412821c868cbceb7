"""Trace files: what is read, and what is refused, with all that is wrong at once."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.traffic.readers import READERS, read_trace, write_trace
from controlplane.traffic.trace import MAX_TOKENS, Trace, TraceError

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
GOOD = Trace(np.array([0.0, 0.25, 3.0]), np.array([10, 20, 30]), np.array([1, 2, 3]))


def refused(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    return caught.value


def csv_of(folder: Path, rows: str, header: str = HEADER) -> Path:
    path = folder / "trace.csv"
    path.write_text(header + rows)
    return path


def jsonl_of(folder: Path, *lines: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def parquet_of(folder: Path, **columns: pa.Array) -> Path:
    path = folder / "trace.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("suffix", READERS)
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"trace{suffix}"
    write_trace(GOOD, path)
    read = read_trace(path)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(read, name), getattr(GOOD, name))


def test_columns_beyond_the_three_and_their_order_do_not_matter(tmp_path: Path) -> None:
    path = csv_of(tmp_path, "x,5,0.5,9\n", header="tenant,output_tokens,arrival_s,prompt_tokens\n")
    trace = read_trace(path)
    assert (trace.arrival_s[0], trace.prompt_tokens[0], trace.output_tokens[0]) == (0.5, 9, 5)


def test_rows_a_little_out_of_order_are_sorted(tmp_path: Path) -> None:
    trace = read_trace(csv_of(tmp_path, "5,1,1\n2,2,2\n9,3,3\n"))
    assert trace.arrival_s.tolist() == [2, 5, 9]
    assert trace.prompt_tokens.tolist() == [2, 1, 3]


def test_a_row_far_out_of_order_is_refused(tmp_path: Path) -> None:
    assert len(read_trace(csv_of(tmp_path, "600,1,1\n0,2,2\n"))) == 2
    error = refused(csv_of(tmp_path, "601,1,1\n0,2,2\n"))
    assert "line 3: arrival_s is 0, after 601; allowed: 1 or more" in str(error)


BAD_CSV = [
    ("nan,5,5", "arrival_s is 'nan'"),
    ("-1,5,5", "arrival_s is -1"),
    ("inf,5,5", "arrival_s is 'inf'"),
    ("1700000000,5,5", "arrival_s is 1700000000"),
    ("1_0,5,5", "arrival_s is '1_0'"),
    (",5,5", "arrival_s is ''"),
    ("1,0,5", "prompt_tokens is 0"),
    ("1,2.5,5", "prompt_tokens is 2.5"),
    ("1,-3,5", "prompt_tokens is -3"),
    ("1,many,5", "prompt_tokens is 'many'"),
    ("1,٣,5", "prompt_tokens is '٣'"),
    ("1,5,0", "output_tokens is 0"),
    ("1,5,NaN", "output_tokens is 'NaN'"),
    ("1,5,10000001", "output_tokens is 10000001"),
    ("1,5,9223372036854775807", "output_tokens is 9.22337203685e+18"),
    ("1,5", "2 fields; allowed: 3"),
    ("1,5,5,5", "4 fields; allowed: 3"),
]


@pytest.mark.parametrize(("row", "said"), BAD_CSV)
def test_a_bad_value_is_named_with_its_line_and_what_is_allowed(tmp_path: Path, row: str, said: str) -> None:
    """B-001, B-006, B-007: NaN, sentinels and garbage are refused at the border, never cast."""
    error = refused(csv_of(tmp_path, f"0,1,1\n{row}\n2,1,1\n"))
    [problem] = error.problems
    assert problem.startswith(f"{tmp_path}/trace.csv:line 3: {said}")
    assert "allowed" in problem


def test_all_problems_come_at_once_in_the_file_s_order(tmp_path: Path) -> None:
    rows = "".join(f"{row}\n" for row, _ in BAD_CSV)
    error = refused(csv_of(tmp_path, rows))
    lines = [int(problem.split("line ")[1].split(":")[0]) for problem in error.problems]
    assert lines == list(range(2, 2 + len(BAD_CSV)))


def test_more_than_twenty_problems_are_counted(tmp_path: Path) -> None:
    error = refused(csv_of(tmp_path, "1,0,0\n" * 50))
    assert (len(error.problems), error.total) == (20, 100)
    assert str(error).endswith("... and 80 more")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"arrival_s": 1, "prompt_tokens": 5}', "output_tokens is missing"),
        ('{"arrival_s": "1", "prompt_tokens": 5, "output_tokens": 5}', "arrival_s is '1'"),
        ('{"arrival_s": 1, "prompt_tokens": true, "output_tokens": 5}', "prompt_tokens is True"),
        ('{"arrival_s": 1, "prompt_tokens": 5, "output_tokens": null}', "output_tokens is missing"),
        ('{"arrival_s": NaN, "prompt_tokens": 5, "output_tokens": 5}', "arrival_s is nan"),
        ('{"arrival_s": 1, "prompt_tokens": 1%s, "output_tokens": 5}' % ("0" * 400), "prompt_tokens is 1000"),
        ("[1, 5, 5]", "a list; allowed: an object"),
        ('{"arrival_s": 1', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    good = json.dumps({"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1})
    [problem] = refused(jsonl_of(tmp_path, good, "", line, good)).problems
    assert problem.startswith(f"{tmp_path}/trace.jsonl:line 3: {said}")


def test_a_bad_parquet_row_is_named(tmp_path: Path) -> None:
    path = parquet_of(
        tmp_path,
        arrival_s=pa.array([0.0, None, float("nan")]),
        prompt_tokens=pa.array([1, 2, None]),
        output_tokens=pa.array([1.0, 1.5, 1.0]),
    )
    problems = [problem.removeprefix(f"{path}:").split(";")[0] for problem in refused(path).problems]
    assert problems == [
        "row 2: arrival_s is null",
        "row 2: output_tokens is 1.5",
        "row 3: arrival_s is nan",
        "row 3: prompt_tokens is null",
    ]


def test_parquet_columns_of_another_type_or_absent_are_all_named(tmp_path: Path) -> None:
    path = parquet_of(tmp_path, arrival_s=pa.array(["0"]), prompt_tokens=pa.array([True]))
    said = str(refused(path))
    assert "column arrival_s is of type string" in said
    assert "column prompt_tokens is of type bool" in said
    assert "no column output_tokens; found: arrival_s, prompt_tokens" in said


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_trace(GOOD, path)
    whole = path.read_bytes()
    for length in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "not a readable parquet file" in str(refused(path))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "", "no column arrival_s; found: no header"),
        ("t.csv", HEADER, "no requests in it"),
        ("t.csv", "a,b\n1,2\n", "no column prompt_tokens; found: a, b"),
        (
            "t.csv",
            "arrival_s,arrival_s,prompt_tokens,output_tokens\n",
            "2 columns named arrival_s; allowed: 1",
        ),
        ("t.jsonl", "", "no requests in it"),
        ("t.txt", HEADER, "suffix '.txt'; known: .parquet, .csv, .jsonl"),
    ],
)
def test_a_file_without_requests_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert said in str(refused(path))


def test_absent_files_folders_and_other_encodings_are_refused_in_words(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "none.parquet"))
    assert "No such file" in str(refused(tmp_path / "none.csv"))
    (tmp_path / "folder.csv").mkdir()
    assert "directory" in str(refused(tmp_path / "folder.csv"))
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"1,2,\xe9\n")
    assert "not UTF-8" in str(refused(tmp_path / "latin.csv"))


@pytest.mark.parametrize("suffix", READERS)
def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe{suffix}")
    assert "is a pipe, allowed: a file" in str(refused(tmp_path / f"pipe{suffix}"))


def test_the_published_azure_columns_are_read_from_the_first_instant_on(tmp_path: Path) -> None:
    path = csv_of(
        tmp_path,
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
        header="TIMESTAMP,ContextTokens,GeneratedTokens\n",
    )
    trace = read_trace(path)
    assert trace.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-5)
    assert trace.output_tokens.tolist() == [44, 109]


def test_a_bad_azure_timestamp_is_named(tmp_path: Path) -> None:
    path = csv_of(
        tmp_path,
        "2023-11-16 18:15:46,374,44\nyesterday,396,109\n",
        header="TIMESTAMP,ContextTokens,GeneratedTokens\n",
    )
    [problem] = refused(path).problems
    assert "line 3: arrival_s is 'yesterday'" in problem


@given(
    st.lists(
        st.tuples(st.floats(0, 500), st.integers(1, MAX_TOKENS), st.integers(1, MAX_TOKENS)),
        min_size=1,
        max_size=30,
    )
)
def test_any_good_rows_come_back_sorted_and_complete(rows: list[tuple[float, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(f"{a!r},{p},{o}\n" for a, p, o in rows)
        trace = read_trace(csv_of(Path(folder), text))
    assert np.all(np.diff(trace.arrival_s) >= 0)
    back = zip(
        trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True
    )
    assert sorted(back) == sorted(rows)


def test_a_trace_s_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        GOOD.arrival_s[0] = 5.0
