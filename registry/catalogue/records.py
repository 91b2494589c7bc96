"""Rows of a table that a user brings, each with the place it stands at: .tsv, .csv, .jsonl (plain or .gz), .parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from registry.catalogue.formats import CSV_RULE, csv_rows, file_format, lines
from registry.errors import CseError, suggestion

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
_TSV = "put one TAB between columns; quotes are ordinary characters: name the file .csv where they enclose cells"
_JSONL = 'write one object a line, such as {"score": 4.5, "sentence1": "…", "sentence2": "…"}'


class Column(NamedTuple):
    """A column wanted.

    Args:
        parameter: The recipe's parameter that names it.
        name: What the file calls it.
    """

    parameter: str
    name: str


class Record(NamedTuple):
    """The wanted cells of one row.

    Args:
        place: `path:line` where the row starts; `path: row n` in a Parquet file, which has no lines.
        cells: Text as it stands in a .tsv or .csv, else values of the file's own types.
    """

    place: str
    cells: tuple[Any, ...]


def typed(path: Path) -> bool:
    """Return whether cells have types of their own, so that a number is never text."""
    return file_format(path) in (".jsonl", ".parquet")


def records(path: Path, columns: Sequence[Column]) -> Iterator[Record]:
    """Yield the wanted cells of each row.

    Raises:
        CseError: The file or a row is malformed; the message gives file, line and reason.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in FORMATS or path.name.endswith(".parquet.gz"):
        raise CseError(
            f"{path}: a table of pairs cannot be read from '{path.name}'",
            f"name it {', '.join(FORMATS[:3])} (plain or .gz) or .parquet, as it is written",
        )
    if suffix == ".tsv":
        return _headed(path, ((number, line.split("\t")) for number, line in lines(path)), columns, _TSV)
    if suffix == ".csv":
        return _headed(path, csv_rows(path), columns, CSV_RULE)
    return _jsonl(path, columns) if suffix == ".jsonl" else _parquet(path, columns)


def _headed(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: Sequence[Column], rule: str
) -> Iterator[Record]:
    header = next(rows, (1, []))[1]
    if header in ([], [""]):
        raise CseError(f"{path}:1: no header: the {'first line is' if next(rows, None) else 'file is'} empty", rule)
    places = [_place(f"{path}:1", header, column, rule) for column in columns]
    for number, cells in rows:
        if len(cells) != len(header):
            if cells in ([], [""]):
                raise CseError(f"{path}:{number}: an empty line", "remove it")
            found = f"{len(cells)} column{'s'[: len(cells) != 1]}"
            raise CseError(f"{path}:{number}: {found} where the header has {len(header)}", rule)
        yield Record(f"{path}:{number}", tuple(cells[place] for place in places))


def _jsonl(path: Path, columns: Sequence[Column]) -> Iterator[Record]:
    for number, line in lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            reason = (
                f"{error.msg.removesuffix(' at')} at character {error.pos + 1}" if line.strip() else "an empty line"
            )
            raise CseError(f"{where}: not JSON: {reason}", _JSONL) from error
        except (ValueError, RecursionError) as error:
            raise CseError(f"{where}: not JSON that can be read: {error}", _JSONL) from error
        if not isinstance(record, Mapping):
            raise CseError(f"{where}: {shown(record)} where an object is expected", _JSONL)
        for column in columns:
            if column.name not in record:
                _no_column(where, list(record), column, "key")
        yield Record(where, tuple(record[column.name] for column in columns))


def _parquet(path: Path, columns: Sequence[Column]) -> Iterator[Record]:
    from pyarrow import ArrowException, parquet

    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            for column in columns:
                _place(str(path), file.schema_arrow.names, column, "each name stands for one column")
            for batch in file.iter_batches(columns=[column.name for column in columns]):
                cells = [batch.column(column.name).to_pylist() for column in columns]
                for values in zip(*cells, strict=True):
                    row += 1
                    yield Record(f"{path}: row {row}", values)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        after = f"damaged after row {row}" if row else "not a Parquet file that can be read"
        raise CseError(f"{path}: {after}: {' '.join(str(error).split())}", "write or fetch the file again") from error


def _place(where: str, header: Sequence[str], column: Column, rule: str) -> int:
    if column.name not in header:
        if len(header) == 1 and (other := next((mark for mark in ("\t", ";", ",", "|") if mark in header[0]), "")):
            raise CseError(f"{where}: the header is one column, {shown(header[0])}, with {other!r} in it", rule)
        _no_column(where, header, column, "column")
    if header.count(column.name) > 1:
        raise CseError(f"{where}: {header.count(column.name)} columns are called '{column.name}'", rule)
    return header.index(column.name)


def _no_column(where: str, known: Sequence[str], column: Column, what: str) -> NoReturn:
    alike = [name for name in known if name.strip().casefold() == column.name.strip().casefold()]
    hint = suggestion(column.name, alike or known)
    names = ", ".join(shown(name) for name in known[:12]) + (", …" if len(known) > 12 else "")
    raise CseError(
        f"{where}: no {what} '{column.name}'.{hint}",
        f"give `{column.parameter}` the right name, one of {names}" if names else _JSONL,
    )


def shown(cell: object) -> str:
    """Return a cell for a message: what it is, and its value where that is short."""
    if cell is None or isinstance(cell, bool):
        return "null" if cell is None else str(cell).lower()
    if isinstance(cell, list | dict | bytes):
        return {list: "a list", dict: "an object", bytes: "binary data"}[type(cell)]
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:57]}…"
