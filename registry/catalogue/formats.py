"""Rows of one file, line by line: .txt, .tsv, .csv, .jsonl (plain or .gz) and .parquet."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from registry.errors import CseError

Row = tuple[str, ...]

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl", ".parquet")
_BOM = "\ufeff"
CSV_RULE = 'put commas between columns; a cell with a comma, quote or line end in it stands in "…", its quotes doubled'


def file_format(path: Path) -> str:
    """Return the suffix that says how to read a file, `.gz` set aside.

    Raises:
        CseError: No reader for it.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise CseError(
            f"{path}: cannot tell how to read '{path.name}'",
            f"name it {', '.join(SUFFIXES[:4])} (plain or .gz) or .parquet",
        )
    return suffix


def names_a_file(name: str) -> bool:
    """Return whether a name ends as those of files that are read here do."""
    return Path(name.removesuffix(".gz")).suffix in SUFFIXES


def open_bytes(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a file for reading, unpacked if its name ends in `.gz`.

    Raises:
        CseError: It does not exist or cannot be read.
    """
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise CseError(f"{path}: {error.strerror or error}", "check the path and its permissions") from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield line number and text of each line; only "\n" (or "\r\n") ends a line, whatever else the text holds.

    Raises:
        CseError: The file is not UTF-8 or its `.gz` wrapping is damaged.
    """
    number = 0
    with open_bytes(path) as file:
        try:
            for number, raw in enumerate(file, start=1):  # bytes split at "\n" only; text mode would also split at "\r"
                line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
                yield number, line.removeprefix(_BOM) if number == 1 else line
        except UnicodeDecodeError as error:
            raise CseError(f"{path}:{number}: not UTF-8: {error.reason}", "convert the file to UTF-8") from error
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise CseError(f"{path}: damaged after line {number}: {error}", "fetch the file again") from error


def header(path: Path) -> Row:
    """Return the column names in the first line of a `.tsv`.

    Raises:
        CseError: They are not names of columns: one is empty or occurs twice.
    """
    names = tuple(next(lines(path), (0, ""))[1].split("\t"))
    if len(set(names)) < len(names) or "" in names:
        raise CseError(
            f"{path}:1: the first line must name the columns, each once; it is {chr(9).join(names)!r}",
            'for one sentence a line, name the file .txt; otherwise add a header such as "text<TAB>translation"',
        )
    return names


def read(path: Path, columns: Sequence[str], headed: bool) -> Iterator[Row]:
    """Yield the named columns of each row.

    Args:
        path: File to read; its name tells the format.
        columns: Columns in the order wanted; an empty name yields empty values. For a `.tsv` without header, a
            column's name is its index.
        headed: Whether the first line of a `.tsv` names its columns; `.txt` never has one, `.csv` always.

    Raises:
        CseError: A row is malformed; the message gives file, line and reason.
    """
    suffix = file_format(path)
    if suffix == ".txt":
        return ((line,) for _, line in lines(path))
    if suffix == ".tsv":
        return _tsv(path, columns, headed)
    if suffix == ".csv":
        return _csv(path, columns)
    if suffix == ".jsonl":
        return _jsonl(path, columns)
    return _parquet(path, columns)


def _tsv(path: Path, columns: Sequence[str], headed: bool) -> Iterator[Row]:
    rows = lines(path)
    if headed:
        first = next(rows, (0, ""))[1].split("\t")
        places, width = _places(path, first, columns), len(first)
    else:
        places = [int(column) if column else None for column in columns]
        width = len(columns)
    for number, line in rows:
        cells = line.split("\t")
        if len(cells) != width:
            raise CseError(
                f"{path}:{number}: {len(cells)} column{'s'[: len(cells) != 1]} where {width} are expected",
                "columns are separated by one TAB each, and quotes are ordinary characters",
            )
        yield tuple("" if place is None else cells[place] for place in places)


def _csv(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    rows = csv_rows(path)
    first = next(rows, (1, []))[1]
    places = _places(path, first, columns)
    for number, cells in rows:
        if len(cells) != len(first):
            raise CseError(f"{path}:{number}: {len(cells)} columns where {len(first)} are expected", CSV_RULE)
        yield tuple("" if place is None else cells[place] for place in places)


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line that each row of a `.csv` starts at, and its cells.

    Raises:
        CseError: Quotes are not as they must be, or the file is not UTF-8.
    """
    # Lines come one by one, not decoded in blocks, so that what is wrong with one of them has a number.
    reader = csv.reader((f"{line}\n" for _, line in lines(path)), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CseError(f"{path}:{start}: {_not_csv(str(error))}", CSV_RULE) from error


def _not_csv(reason: str) -> str:
    if reason == "unexpected end of data" or "field limit" in reason:
        return "a quote that opens in this row is never closed"
    if reason.startswith("new-line character"):
        return "a carriage return in a cell without quotes"
    return f"not CSV: {reason}"


def _jsonl(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in lines(path):
        try:
            record = json.loads(line)
            yield tuple(str(record[column]) if column else "" for column in columns)
        except (ValueError, TypeError) as error:
            raise CseError(f"{path}:{number}: not a JSON object: {error}") from error
        except KeyError as error:
            raise CseError(f"{path}:{number}: no key {error}; there are {', '.join(record)}") from error


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        _places(path, file.schema_arrow.names, columns)
        wanted = [column for column in columns if column]
        for batch in file.iter_batches(columns=wanted):
            table = batch.to_pydict()
            for index in range(batch.num_rows):
                yield tuple(str(table[column][index]) if column else "" for column in columns)


def _places(path: Path, first: Sequence[str], columns: Sequence[str]) -> list[int | None]:
    missing = [column for column in columns if column and column not in first]
    if missing:
        raise CseError(
            f"{path}:1: no column {', '.join(map(repr, missing))} in the header",
            f"the header has {', '.join(map(repr, first))}",
        )
    return [list(first).index(column) if column else None for column in columns]
