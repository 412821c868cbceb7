"""Trace files: parquet, CSV, JSONL, and the columns of the published Azure CSVs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.traffic.trace import COLUMNS, Column, Floats, Ints, Raw, Trace, TraceError, checked

AZURE = {"arrival_s": "TIMESTAMP", "prompt_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}
"""Columns of github.com/Azure/AzurePublicDataset `AzureLLMInferenceTrace_*.csv`."""

Problem = tuple[int, str]
Record = tuple[int, Mapping[str, object]]


def read_trace(path: Path) -> Trace:
    """The trace in `path`, by its suffix. Raises TraceError with all problems; never half a trace."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise TraceError([f"{path}: suffix {path.suffix or '(none)'!r}; known: {', '.join(READERS)}"])
    try:
        if path.is_fifo():  # opening one waits for a writer, and no signal ends that
            raise TraceError([f"{path}: is a pipe, allowed: a file"])
        return reader(path)
    except OSError as error:
        raise TraceError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise TraceError([f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"]) from error


def write_trace(trace: Trace, path: Path) -> None:
    """Write `trace` in the form that `path`'s suffix names. Raises TraceError for an unknown one."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise TraceError([f"{path}: suffix {path.suffix or '(none)'!r}; known: {', '.join(WRITERS)}"])
    writer(trace, path)


# -- parquet ---------------------------------------------------------------------------------------


def _parquet(path: Path) -> Trace:
    table = _parquet_table(path)
    columns = {name: _parquet_column(table.column(name)) for name in COLUMNS}
    numbers = np.arange(1, table.num_rows + 1, dtype=np.int64)
    return checked(Raw(str(path), "row", numbers, columns))


def _parquet_table(path: Path) -> Any:
    """The three columns. A truncated file, a missing column and a wrong type all end here."""
    try:
        with pq.ParquetFile(path) as file:
            _refuse(path, _schema_problems(file.schema_arrow))
            return file.read(columns=list(COLUMNS))
    except pa.ArrowException as error:
        raise TraceError([f"{path}: not a readable parquet file: {error}"]) from error


def _schema_problems(schema: Any) -> Iterator[str]:
    yield from _header_problems(schema.names)
    for name in COLUMNS:
        if schema.names.count(name) == 1 and not _numeric(schema.field(name).type):
            yield f"column {name} is of type {schema.field(name).type}; allowed: an integer or float type"


def _numeric(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _parquet_column(column: Any) -> Column:
    nulls = np.flatnonzero(column.is_null().to_numpy())
    numbers = np.asarray(column.to_numpy(), dtype=np.float64).copy()
    return Column(numbers, {int(at): "null" for at in nulls})


# -- CSV and JSONL ---------------------------------------------------------------------------------


def _csv(path: Path) -> Trace:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        azure = AZURE["arrival_s"] in header and COLUMNS[0] not in header
        names = AZURE if azure else {name: name for name in COLUMNS}
        _refuse(path, _header_problems(header, tuple(names.values())))
        problems: list[Problem] = []
        records = list(_csv_records(path, rows, header, names, problems))
    return _from_records(path, records, _instant if azure else _number, problems)


def _csv_records(
    path: Path, rows: Any, header: Sequence[str], names: Mapping[str, str], problems: list[Problem]
) -> Iterator[Record]:
    """Records under our own column names, with their line. A row of another width is a problem."""
    at = {name: header.index(theirs) for name, theirs in names.items()}
    try:
        for row in rows:
            if len(row) == len(header):
                yield rows.line_num, {name: row[index] for name, index in at.items()}
            elif row:
                problems.append(
                    (rows.line_num, f"{len(row)} fields; allowed: {len(header)}, as in the header")
                )
    except csv.Error as error:
        raise TraceError([f"{path}:line {rows.line_num}: {error}"]) from error


def _jsonl(path: Path) -> Trace:
    problems: list[Problem] = []
    with path.open(encoding="utf-8-sig") as file:
        records = list(_json_records(file, problems))
    return _from_records(path, records, _json_number, problems)


def _json_records(lines: Iterable[str], problems: list[Problem]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append((number, f"not JSON: {error}"))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            problems.append(
                (number, f"a {type(record).__name__}; allowed: an object with {', '.join(COLUMNS)}")
            )


def _from_records(
    path: Path, records: Sequence[Record], arrival: Callable[[object], float], problems: Sequence[Problem]
) -> Trace:
    numbers: Ints = np.array([number for number, _ in records], dtype=np.int64)
    columns = {
        name: _column([record.get(name) for _, record in records], parse)
        for name, parse in zip(COLUMNS, (arrival, _plain(arrival), _plain(arrival)), strict=True)
    }
    if arrival is _instant:
        columns["arrival_s"] = _from_first(columns["arrival_s"])
    return checked(Raw(str(path), "line", numbers, columns), problems)


def _column(values: Sequence[object], parse: Callable[[object], float]) -> Column:
    """Numbers, NaN where `parse` cannot read one; and what stood there instead."""
    numbers: Floats = np.array([parse(value) for value in values], dtype=np.float64)
    unread = np.flatnonzero(~np.isfinite(numbers))
    return Column(numbers, {int(at): _shown(values[int(at)]) for at in unread})


def _shown(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: object) -> float:
    """A CSV field. Python's own liberties (`1_000`, other scripts' digits) are not numbers in a CSV."""
    text = str(value).strip()
    if not text.isascii() or "_" in text:
        return np.nan
    try:
        return float(text)
    except ValueError:
        return np.nan


def _json_number(value: object) -> float:
    """A JSON number; `"12"` and `true` are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _instant(value: object) -> float:
    """Epoch seconds of an ISO timestamp; one without a zone is UTC, as Azure publishes them."""
    try:
        instant = datetime.fromisoformat(str(value).strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return np.nan


def _plain(arrival: Callable[[object], float]) -> Callable[[object], float]:
    return _number if arrival is _instant else arrival


def _from_first(column: Column) -> Column:
    """Instants as seconds from the earliest."""
    known = column.number[np.isfinite(column.number)]
    return Column(column.number - (known.min() if known.size else 0.0), column.text)


# -- shared ----------------------------------------------------------------------------------------


def _header_problems(found: Sequence[str], wanted: Sequence[str] = COLUMNS) -> Iterator[str]:
    for name in wanted:
        if found.count(name) == 0:
            yield f"no column {name}; found: {', '.join(found) or 'no header'}"
        elif found.count(name) > 1:
            yield f"{found.count(name)} columns named {name}; allowed: 1"


def _refuse(path: Path, problems: Iterable[str]) -> None:
    listed = [f"{path}: {problem}" for problem in problems]
    if listed:
        raise TraceError(listed)


def _table(trace: Trace) -> Any:
    return pa.table({name: getattr(trace, name) for name in COLUMNS})


def _write_parquet(trace: Trace, path: Path) -> None:
    pq.write_table(_table(trace), path)


def _rows(trace: Trace) -> Iterator[tuple[float, int, int]]:
    columns = (getattr(trace, name).tolist() for name in COLUMNS)
    return zip(*columns, strict=True)


def _write_csv(trace: Trace, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_rows(trace))


def _write_jsonl(trace: Trace, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in _rows(trace))


READERS: Mapping[str, Callable[[Path], Trace]] = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl}
WRITERS: Mapping[str, Callable[[Trace, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
}
