r"""Rows of small tables, each with the place it stands at: text, TSV, CSV, JSON lines, Parquet.

Text to train on is read by `datasets`. What is evaluated on is read here, because the csv builder of `datasets` was
measured to fill short rows with NaN without a word, to guess types ("NA" becomes NaN, "005" the number 5) and to name
no line; and a file opened in text mode ends lines at more than "\n".
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from registry.catalogue.entries import Layout
from registry.errors import CseError, suggestion

Row = tuple[Any, ...]
Numbered = Iterator[tuple[int, Row]]

FORMATS = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".parquet")
_PLAIN = Layout()
_TSV = "put one TAB between columns; quotes are ordinary characters: name the file .csv where they enclose cells"
_CSV = 'put commas between columns; a cell with a comma, quote or line end in it stands in "…", its quotes doubled'
_JSONL = 'write one object a line, such as {"score": 4.5, "sentence1": "…", "sentence2": "…"}'


class Column(NamedTuple):
    """A column wanted.

    Args:
        parameter: The recipe's parameter that names it; empty where the catalogue does.
        name: What the table calls it.
    """

    parameter: str
    name: str


@dataclass(frozen=True)
class File:
    """Rows of a file, or of a member of an archive.

    Args:
        path: The file; its name tells the format.
        layout: How rows stand in it.
        columns: Our names in their order, for a `.tsv` without header.
        member: Path inside the archive.
        beside: More files of as many lines: a row is the n-th line of each, in the order of `columns`.
        constants: Column → what every row has there.
        limit: Rows read.
    """

    path: Path
    layout: Layout = _PLAIN
    columns: tuple[str, ...] = ()
    member: str = ""
    beside: tuple[Path, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None

    @property
    def where(self) -> str:
        """What to call it in messages."""
        return " beside ".join(map(str, (self.path / self.member, *self.beside)))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files it is read from."""
        return (self.path, *self.beside)

    @property
    def format(self) -> str:
        """How to read it: ".tsv" and the like."""
        if self.layout.pattern or self.beside:
            return "pattern" if self.layout.pattern else ".tsv"
        return file_format(self.path / self.member)

    @property
    def typed(self) -> bool:
        """Whether cells have types of their own, so that a number is never text."""
        return self.format in (".jsonl", ".json", ".parquet")

    def location(self, number: int) -> str:
        """Return `path:line`; of Parquet, which has no lines, `path: row n`."""
        return f"{self.where}: row {number}" if self.format == ".parquet" else f"{self.where}:{number}"

    def read(self, columns: Sequence[Column]) -> Numbered:
        """Yield the line, or row, that each row starts at and its wanted cells, as they are or as the file types them.

        Raises:
            CseError: The file or a row is malformed, or a column is not there; the message has place and reason.
        """
        theirs = self.layout.columns
        fixed = {**{ours: "" for ours, name in theirs.items() if not name}, **self.constants}
        inside = [Column(c.parameter, theirs.get(c.name, c.name)) for c in columns if c.name not in fixed]
        rows = islice(_READERS[self.format](self, inside), self.limit)
        return rows if len(inside) == len(columns) else _filled(rows, columns, fixed)

    def header(self) -> tuple[str, ...]:
        """Return the columns that a `.tsv` or `.csv` names; a `.txt` has one, `text`.

        Raises:
            CseError: The first line does not name columns, each once, or the file is of another format.
        """
        if self.format not in FORMATS[:3]:
            raise CseError(f"{self.where} is no .txt, .tsv or .csv file", "convert it to .tsv with a header")
        names = ["text"] if self.format == ".txt" else next(_split(self), (1, [""]))[1]
        if len(set(names)) < len(names) or "" in names:
            raise CseError(
                f"{self.location(1)}: the first line must name the columns, each once; it is {chr(9).join(names)!r}",
                'for one sentence a line, name the file .txt; otherwise add a header such as "text<TAB>translation"',
            )
        return tuple(names)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line; of files side by side, their lines joined by TAB."""
        first = lines(self.path, self.member, self.layout)
        if not self.beside:
            yield from first
            return
        try:
            for numbered in zip(first, *(lines(path, layout=self.layout) for path in self.beside), strict=True):
                yield numbered[0][0], "\t".join(line for _, line in numbered)
        except ValueError as error:
            raise CseError(f"{self.where}: not the same number of lines", "fetch the files again") from error


@dataclass(frozen=True)
class Rows:
    """Rows that are in no file of ours: made by a generator, or of a data set of the hub.

    Args:
        where: What to call them in messages.
        make: Returns the rows, column → cell; called with the columns that are needed.
        columns: Those they have.
        typed: Whether cells have types of their own.
    """

    where: str
    make: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]]
    columns: Sequence[str]
    typed: bool = False
    paths: tuple[Path, ...] = ()

    def location(self, number: int) -> str:
        """Return the name and the row."""
        return f"{self.where}: row {number}"

    def read(self, columns: Sequence[Column]) -> Numbered:
        """Yield the number and the wanted cells of each row.

        Raises:
            CseError: A column is not there.
        """
        for column in columns:
            if column.name not in self.columns:
                _no_column(self.where, self.columns, column, "column")
        names = [column.name for column in columns]
        for number, row in enumerate(self.make(names), start=1):
            if not row.keys() >= set(names):
                raise CseError(
                    f"{self.location(number)}: no {', '.join(set(names) - row.keys())}, but {', '.join(row)}"
                )
            yield number, tuple(row[name] for name in names)


Table = File | Rows


def file_format(path: Path) -> str:
    """Return the suffix that says how to read a file, `.gz` set aside.

    Raises:
        CseError: No reader for it.
    """
    if not names_a_file(path.name):
        raise CseError(
            f"{path}: cannot tell how to read '{path.name}'",
            f"name it {', '.join(FORMATS[:4])} (plain or .gz) or .parquet, as it is written",
        )
    return Path(path.name.removesuffix(".gz")).suffix


def names_a_file(name: str) -> bool:
    """Return whether a name ends as those of files that are read here do."""
    return Path(name.removesuffix(".gz")).suffix in FORMATS and not name.endswith(".parquet.gz")


def lines(path: Path, member: str = "", layout: Layout = _PLAIN) -> Iterator[tuple[int, str]]:
    r"""Yield number and text of each line; only "\n" (or "\r\n") ends a line, whatever else the text holds.

    Raises:
        CseError: The file does not exist, is in another encoding, or its packing is damaged.
    """
    number, where = 0, path / member
    dropped = str.maketrans("", "", layout.remove)
    try:
        with _opened(path, member) as file:
            for number, raw in enumerate(file, start=1):  # bytes split at "\n" only; text mode would also split at "\r"
                line = raw.decode(layout.encoding).removesuffix("\n").removesuffix("\r")
                line = line.removeprefix("\ufeff") if number == 1 else line
                yield number, line.translate(dropped) if dropped else line
    except UnicodeDecodeError as error:
        known = layout.encoding.upper()
        raise CseError(f"{where}:{number}: not {known}: {error.reason}", "convert the file to UTF-8") from error
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError) as error:
        raise CseError(f"{where}: damaged after line {number}: {error}", "fetch the file again") from error
    except OSError as error:
        raise CseError(f"{where}: {error.strerror or error}", "check the path and its permissions") from error


@contextmanager
def _opened(path: Path, member: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not member:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    else:
        with tarfile.open(path) as tar:
            found = tar.extractfile(member)
            assert found is not None, "`member_of` names files only"
            yield found


@lru_cache(maxsize=64)
def member_of(archive: Path, ending: str) -> str | None:
    """Return the member of an archive whose path ends so, the shortest of several; None if there is none.

    Raises:
        CseError: It is not an archive that can be read.
    """
    try:
        with tarfile.open(archive) as tar:
            names = [member.name for member in tar if member.isfile()]
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise CseError(f"{archive}: not an archive that can be read: {error}", "fetch it again") from error
    alike = [name for name in names if f"/{name}".endswith(f"/{ending}") and "__MACOSX" not in name]
    return min(alike, key=len, default=None)


def _filled(rows: Numbered, columns: Sequence[Column], fixed: Mapping[str, str]) -> Numbered:
    for number, row in rows:
        cells = iter(row)
        yield number, tuple(fixed[column.name] if column.name in fixed else next(cells) for column in columns)


def _text(file: File, columns: Sequence[Column]) -> Numbered:
    return ((number, (line,) * len(columns)) for number, line in file.lines())


def _matched(file: File, columns: Sequence[Column]) -> Numbered:
    pattern = re.compile(file.layout.pattern)
    for number, line in islice(file.lines(), file.layout.skip, None):
        if (found := pattern.fullmatch(line)) is None:
            raise CseError(f"{file.location(number)}: {shown(line)} does not match {pattern.pattern}", "fetch it again")
        yield number, tuple(" ".join(found[column.name].split()) for column in columns)


def _table(file: File, columns: Sequence[Column]) -> Numbered:
    rows, rule = _split(file), _CSV if file.format == ".csv" else _TSV
    header, owner = list(file.columns), "the catalogue"
    if file.layout.header and not file.beside:
        header, owner = next(rows, (1, []))[1], "the header"
        if header in ([], [""]):
            empty = "first line is" if next(rows, None) else "file is"
            raise CseError(f"{file.location(1)}: no header: the {empty} empty", rule)
    places = [_find(file.location(1), header, column, rule) for column in columns]
    for number, cells in rows:
        if len(cells) != len(header):
            if cells in ([], [""]):
                raise CseError(f"{file.location(number)}: an empty line", "remove it")
            found = f"{len(cells)} column{'s'[: len(cells) != 1]}"
            raise CseError(f"{file.location(number)}: {found} where {owner} has {len(header)}", rule)
        yield number, tuple(cells[place] for place in places)


def _split(file: File) -> Iterator[tuple[int, list[str]]]:
    if file.format != ".csv":
        yield from ((number, line.split("\t")) for number, line in file.lines())
        return
    # Lines come one by one, not decoded in blocks, so that what is wrong with one of them has a number.
    reader = csv.reader((f"{line}\n" for _, line in file.lines()), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CseError(f"{file.location(start)}: {_not_csv(str(error))}", _CSV) from error


def _not_csv(reason: str) -> str:
    if reason == "unexpected end of data" or "field limit" in reason:
        return "a quote that opens in this row is never closed"
    if reason.startswith("new-line character"):
        return "a carriage return in a cell without quotes"
    return f"not CSV: {reason}"


def _jsonl(file: File, columns: Sequence[Column]) -> Numbered:
    for number, line in file.lines():
        where = file.location(number)
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            found = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
            raise CseError(f"{where}: not JSON: {found if line.strip() else 'an empty line'}", _JSONL) from error
        except (ValueError, RecursionError) as error:
            raise CseError(f"{where}: not JSON that can be read: {error}", _JSONL) from error
        if not isinstance(record, Mapping):
            raise CseError(f"{where}: {shown(record)} where an object is expected", _JSONL)
        for column in columns:
            if column.name not in record:
                _no_column(where, list(record), column, "key")
        yield number, tuple(record[column.name] for column in columns)


def _parquet(file: File, columns: Sequence[Column]) -> Numbered:
    from pyarrow import ArrowException, parquet

    row = 0
    try:
        with parquet.ParquetFile(file.path) as opened:
            for column in columns:
                _find(file.where, opened.schema_arrow.names, column, "each name stands for one column")
            for batch in opened.iter_batches(columns=[column.name for column in columns]):
                for values in zip(*(batch.column(column.name).to_pylist() for column in columns), strict=True):
                    row += 1
                    yield row, values
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        after = f"damaged after row {row}" if row else "not a Parquet file that can be read"
        reason = " ".join(str(error).split())
        raise CseError(f"{file.where}: {after}: {reason}", "write or fetch the file again") from error


_READERS = {
    "pattern": _matched, ".txt": _text, ".tsv": _table, ".csv": _table, ".jsonl": _jsonl, ".json": _jsonl,
    ".parquet": _parquet,
}  # fmt: skip


def _find(where: str, header: Sequence[str], column: Column, rule: str) -> int:
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
    action = f"give `{column.parameter}` the right name, one of {names}" if column.parameter else f"it has {names}"
    raise CseError(f"{where}: no {what} '{column.name}'.{hint}", action if names else _JSONL)


def shown(cell: object) -> str:
    """Return a cell for a message: what it is, and its value where that is short."""
    if cell is None or isinstance(cell, bool):
        return "null" if cell is None else str(cell).lower()
    if isinstance(cell, list | dict | bytes):
        return {list: "a list", dict: "an object", bytes: "binary data"}[type(cell)]
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:57]}…"
