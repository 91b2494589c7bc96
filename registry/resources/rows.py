r"""Rows of a split, and readers of its tables: text, TSV, CSV, JSON lines, Parquet. They report the line of each row.

Training text and evaluation data in .txt, .tsv and .csv files have this one reader. The csv builder of `datasets`
silently fills short rows with NaN, guesses types ("NA" becomes NaN, "005" the number 5) and reports no line numbers.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from registry.errors import CseError, UnknownNameError, suggestion

Row = tuple[Any, ...]
Numbered = Iterator[tuple[int, Row]]

FORMATS = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".parquet")
_TSV = "separate columns by one TAB; if quotes enclose cells, name the file .csv"
_CSV = 'separate columns by commas; enclose cells with a comma, quote or line break in "…", and double their quotes'
_JSONL = 'write one object per line, such as {"score": 4.5, "sentence1": "…", "sentence2": "…"}'
_LARGEST_CELL = 2**31 - 1
"""Number of characters of a cell that the csv module accepts. Its own limit is 131,072."""
_CSV_CELL = re.compile(r'"(?:[^"]|"")*"')
"""Cell in quotes, with every quote in it doubled, as csv writers write it."""


Kind = Literal["text", "pairs", "labeled"]
"""Kind of a data set."""


class CatalogTable(BaseModel):
    """Base class of the tables in the files of the catalog. Rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Layout(CatalogTable):
    r"""Format of the rows in a file.

    Args:
        header: Whether the first line of a `.tsv` names the columns. Without it, columns have the order of the entry.
        columns: Column of the entry → column of the file, if they differ. An empty name means that the file has no such
            column, and every row gets an empty cell.
        pattern: Regular expression for a line. Its named groups are the columns, and white space in them is reduced to
            single blanks, as in SentEval's readers.
        skip: Number of lines before the first row. Requires `pattern`.
        encoding: Encoding of the text.
        remove: Characters that are removed everywhere, such as "\u200b".
        longer: Whether the files have more rows than the split, which is their beginning.
    """

    header: bool = True
    columns: dict[str, str] = Field(default_factory=dict)
    pattern: str = ""
    skip: int = 0
    encoding: str = "utf-8"
    remove: str = ""
    longer: bool = False


_PLAIN = Layout()


class Column(NamedTuple):
    """A column of a table. `parameter` of the recipe names it, and is empty for columns of the catalog."""

    parameter: str
    name: str


@dataclass(frozen=True)
class File:
    """Rows of a file, or of a member of an archive.

    Args:
        path: Path. The suffix determines the format.
        layout: Layout of the rows.
        columns: Names of the columns in order, for a `.tsv` without header.
        member: Path inside the archive.
        others: Files with as many lines as `path`. Row n consists of their n-th lines, in the order of `columns`.
        constants: Column → value of this column in every row.
        limit: Maximum number of rows to read.
    """

    path: Path
    layout: Layout = _PLAIN
    columns: tuple[str, ...] = ()
    member: str = ""
    others: tuple[Path, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None

    @property
    def where(self) -> str:
        """Name for messages."""
        return " and ".join(map(str, (self.path / self.member, *self.others)))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files to read."""
        return (self.path, *self.others)

    @cached_property
    def format(self) -> str:
        """Format, such as ".tsv"."""
        if self.layout.pattern or self.others:
            return "pattern" if self.layout.pattern else ".tsv"
        return file_format(self.path / self.member)

    @cached_property
    def typed(self) -> bool:
        """Whether cells have types, so that a number is never text."""
        return self.format in (".jsonl", ".json", ".parquet")

    def location(self, number: int) -> str:
        """Return `path:line`, or `path: row n` for Parquet, which has no lines."""
        return f"{self.where}: row {number}" if self.format == ".parquet" else f"{self.where}:{number}"

    def read(self, columns: Sequence[Column]) -> Numbered:
        """Yield the first line (or the number) and the requested cells of each row, with the types of the file."""
        theirs = self.layout.columns
        fixed = {**{ours: "" for ours, name in theirs.items() if not name}, **self.constants}
        inside = [Column(c.parameter, theirs.get(c.name, c.name)) for c in columns if c.name not in fixed]
        rows = islice(_READERS[self.format](self, inside), self.limit)
        if len(inside) == len(columns):
            return rows
        found = ((number, iter(row)) for number, row in rows)
        return ((n, tuple(fixed[c.name] if c.name in fixed else next(row) for c in columns)) for n, row in found)

    def header(self) -> tuple[str, ...]:
        """Return the column names of a `.tsv` or `.csv`, or `text` for a `.txt`."""
        if self.format not in FORMATS[:3]:
            raise CseError(
                f"{self.where} is not a .txt, .tsv or .csv file",
                "convert it to .tsv with a header",
                code="data.unsupported_format",
            )
        names = ["text"] if self.format == ".txt" else next(_split(self), (1, [""]))[1]
        if not names or len(set(names)) < len(names) or "" in names:
            raise CseError(
                f"{self.location(1)}: the first line must contain unique column names, not {chr(9).join(names)!r}",
                'add a header such as "text<TAB>translation", or name the file .txt if it has one sentence per line',
                code="data.no_header",
            )
        return tuple(names)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line. The n-th lines of several files are joined by TAB."""
        first = lines(self.path, self.member, self.layout)
        if not self.others:
            yield from first
            return
        try:
            for numbered in zip(first, *(lines(path, layout=self.layout) for path in self.others), strict=True):
                yield numbered[0][0], "\t".join(line for _, line in numbered)
        except ValueError as error:
            raise CseError(
                f"{self.where}: different numbers of lines", "download the files again", code="data.damaged_file"
            ) from error


@dataclass(frozen=True)
class Rows:
    """Rows without a file: from a generator, or from a data set of the Hub.

    Args:
        make: Function of the required columns that returns the rows as column → cell.
        typed: Whether cells have types.
    """

    where: str
    make: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]]
    columns: Sequence[str]
    typed: bool = False
    paths: tuple[Path, ...] = ()

    def location(self, number: int) -> str:
        """Return the place of a row for messages."""
        return f"{self.where}: row {number}"

    def read(self, columns: Sequence[Column]) -> Numbered:
        """Yield the number and the requested cells of each row."""
        for column in columns:
            if column.name not in self.columns:
                _no_column(self.where, self.columns, column, "column")
        names = [column.name for column in columns]
        for number, row in enumerate(self.make(names), start=1):
            if not row.keys() >= set(names):
                raise CseError(
                    f"{self.location(number)}: no {', '.join(set(names) - row.keys())}, only {', '.join(row)}",
                    code="data.missing_column",
                )
            yield number, tuple(row[name] for name in names)


Table = File | Rows


class Record(NamedTuple):
    """The requested cells of one row, as text or with the types of the file."""

    table: Table
    number: int
    cells: Row

    @property
    def location(self) -> str:
        """Place of the row: `path:line`, or `path: row n` for a file without lines."""
        return self.table.location(self.number)


@dataclass(frozen=True)
class Source:
    """Rows of a split as text cells. They can be read repeatedly.

    Args:
        tables: Tables with the rows, in order.
        expected: Number of rows in the catalog.
        sha256: Digest in the catalog.
        kind: Kind of the data set.
        remedy: Next action if rows are missing.
    """

    columns: tuple[str, ...]
    tables: tuple[Table, ...]
    expected: int | None = None
    sha256: str = ""
    kind: Kind = "text"
    remedy: str = "download the file again, or use it as your own file"

    @property
    def where(self) -> str:
        """Name for messages: paths, or the generator."""
        return ", ".join(table.where for table in self.tables)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files without repetition. Empty for generated rows."""
        return tuple(dict.fromkeys(path for table in self.tables for path in table.paths))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield each row, all columns."""
        return self.read(self.columns)

    def read(self, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the requested columns of each row, in this order, as text."""
        self.require(columns)
        wanted = [Column("", name) for name in columns]
        for table in self.tables:
            if table.typed:
                yield from (_as_text(Record(table, *row), columns) for row in table.read(wanted))
            else:
                yield from (cells for _, cells in table.read(wanted))

    def records(self, columns: Sequence[Column]) -> Iterator[Record]:
        """Yield the requested cells of each row with the types of the file."""
        return (Record(table, *row) for table in self.tables for row in table.read(columns))

    def location(self, row: int) -> str:
        """Return the place of row number `row`, counted from 1."""
        return next(islice(self.records([Column("", name) for name in self.columns]), row - 1, None)).location

    @property
    def digest(self) -> str:
        r"""SHA-256 of the rows, the same for all sources. A digest that differs from the catalog causes a warning.

        Cells are joined by TAB, and each row ends with "\n", in UTF-8. The column `subset` is omitted, because most
        copies on the Hub lack it. Scores are written as `repr(float(score))`. White space in evaluation data is reduced
        to single blanks, as evaluators read it.
        """
        rows, digest = self.scanned
        self.check(rows)
        if self.sha256 and digest != self.sha256:
            warnings.warn(
                f"{self.where}: the number of rows is correct, but their digest {digest} differs from the catalog "
                f"({self.sha256}): scores can differ slightly",
                stacklevel=2,
            )
        return digest

    @property
    def known(self) -> bool | None:
        """Whether the digest is that of the catalog. None if rows are missing or malformed."""
        try:
            rows, digest = self.scanned
        except CseError:
            return None
        return digest == (self.sha256 or digest) if rows == self.expected else None

    @cached_property
    def scanned(self) -> tuple[int, str]:
        """Number of rows and their digest, without checks."""
        columns = [name for name in self.columns if name != "subset"]
        rows, digest = 0, hashlib.sha256()
        for cells in self.read(columns):
            rows += 1
            written = cells if self.kind == "text" else map(_evaluated, columns, cells)
            digest.update("\t".join(written).encode("utf-8", "surrogatepass") + b"\n")
        return rows, digest.hexdigest()

    def check(self, rows: int) -> int:
        """Return `rows`. Raise `CseError` if the catalog has another number."""
        if self.expected is not None and rows != self.expected:
            raise CseError(
                f"{self.where}: {rows} rows instead of {self.expected}", self.remedy, code="data.wrong_row_count"
            )
        return rows

    def require(self, columns: Sequence[str]) -> None:
        """Raise `UnknownNameError` if a column is missing."""
        for column in columns:
            if column not in self.columns:
                raise UnknownNameError(
                    f"{self.where}: no column '{column}'.{suggestion(column, self.columns)}",
                    f"use one of its columns: {', '.join(self.columns)}",
                    code="data.missing_column",
                )


def _as_text(record: Record, columns: Sequence[str]) -> tuple[str, ...]:
    for column, cell in zip(columns, record.cells, strict=True):
        if not isinstance(cell, str | int | float):
            raise CseError(
                f"{record.location}: '{column}' is {shown(cell)}, not text",
                "download or write the file again",
                code="data.invalid_cell",
            )
    return tuple(map(str, record.cells))


def _evaluated(column: str, cell: str) -> str:
    try:
        return repr(float(cell)) if column == "score" else " ".join(cell.split())
    except ValueError:
        return cell  # `read_pairs` raises


def own_source(path: Path) -> Source:
    """Return the rows of a user's .txt, .tsv or .csv file."""
    file = File(path)
    return Source(file.header(), (file,))


# --- files ---------------------------------------------------------------------------------------------------------


def file_format(path: Path) -> str:
    """Return the suffix of a file without `.gz`. Raise `CseError` if there is no reader for it."""
    if not names_a_file(path.name):
        raise CseError(
            f"{path}: the suffix of '{path.name}' is not a supported format",
            f"use {', '.join(FORMATS[:4])} (plain or .gz) or .parquet",
            code="data.unsupported_format",
        )
    return Path(path.name.removesuffix(".gz")).suffix


def names_a_file(name: str) -> bool:
    """Return whether a file name has a supported suffix."""
    return Path(name.removesuffix(".gz")).suffix in FORMATS and not name.endswith(".parquet.gz")


def lines(path: Path, member: str = "", layout: Layout = _PLAIN) -> Iterator[tuple[int, str]]:
    r"""Yield number and text of each line. "\n", "\r\n" and "\r" end a line, as in text mode of Python."""
    number, where = 0, path / member
    dropped = str.maketrans("", "", layout.remove)
    try:
        with _opened(path, member) as file:
            for raw in file:  # up to "\n". Each is decoded on its own, so that an error has its number
                for line in raw.decode(layout.encoding).removesuffix("\n").removesuffix("\r").split("\r"):
                    number += 1
                    line = line.removeprefix("\ufeff") if number == 1 else line
                    yield number, line.translate(dropped) if dropped else line
    except UnicodeDecodeError as error:
        known = layout.encoding.upper()
        raise CseError(
            f"{where}:{number + 1}: not {known}: {error.reason}",
            "convert the file to UTF-8",
            code="data.wrong_encoding",
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError) as error:
        raise CseError(
            f"{where}: damaged after line {number}: {error}", "download the file again", code="data.damaged_file"
        ) from error
    except OSError as error:
        raise CseError(
            f"{where}: {error.strerror or error}", "check the path and its permissions", code="data.unreadable_file"
        ) from error


@contextmanager
def _opened(path: Path, member: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not member:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    else:
        with tarfile.open(path) as tar:
            found = tar.extractfile(member)
            assert found is not None, "`member_of` returns only files"
            yield found


def member_of(archive: Path, ending: str) -> str | None:
    """Return the member of an archive with this end of its path, the shortest of several, or None."""
    try:
        names = _members(archive, archive.stat().st_mtime_ns)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise CseError(
            f"{archive}: cannot read the archive: {error}", "download it again", code="data.damaged_file"
        ) from error
    alike = [name for name in names if f"/{name}".endswith(f"/{ending}") and "__MACOSX" not in name]
    return min(alike, key=len, default=None)


@lru_cache(maxsize=16)
def _members(archive: Path, _modified: int) -> list[str]:
    with tarfile.open(archive) as tar:
        return [member.name for member in tar if member.isfile()]


def _text(file: File, columns: Sequence[Column]) -> Numbered:
    return ((number, (line,) * len(columns)) for number, line in file.lines())


def _matched(file: File, columns: Sequence[Column]) -> Numbered:
    pattern = re.compile(file.layout.pattern)
    for number, line in islice(file.lines(), file.layout.skip, None):
        if (found := pattern.fullmatch(line)) is None:
            raise CseError(
                f"{file.location(number)}: {shown(line)} does not match {pattern.pattern}",
                "download the file again",
                code="data.malformed_row",
            )
        yield number, tuple(" ".join(found[column.name].split()) for column in columns)


def _table(file: File, columns: Sequence[Column]) -> Numbered:
    """Yield the rows of a .tsv or .csv. Blank lines become rows of empty cells."""
    rows, rule = _split(file), _CSV if file.format == ".csv" else _TSV
    header, owner = list(file.columns), "the catalog"
    if file.layout.header and not file.others:
        header, owner = next(rows, (1, []))[1], "the header"
        if header in ([], [""]):
            empty = "first line is" if next(rows, None) else "file is"
            raise CseError(f"{file.location(1)}: no header: the {empty} empty", rule, code="data.no_header")
    places = [_find(file.location(1), header, column, rule) for column in columns]
    for number, cells in rows:
        if len(cells) != len(header):
            if any(cell.strip() for cell in cells):
                found = f"{len(cells)} cell{'s'[: len(cells) != 1]}"
                raise CseError(
                    f"{file.location(number)}: row has {found}, but {owner} has {len(header)}",
                    rule,
                    code="data.malformed_row",
                )
            cells = [""] * len(header)
        yield number, tuple(cells[place] for place in places)


def _split(file: File) -> Iterator[tuple[int, list[str]]]:
    if file.format != ".csv":
        yield from _split_at_tabs(file)
        return
    csv.field_size_limit(_LARGEST_CELL)
    reader = csv.reader((f"{line}\n" for _, line in file.lines()), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = str(error) == "unexpected end of data"
            reason = "this row opens a quote that is never closed" if unclosed else f"not CSV: {error}"
            raise CseError(f"{file.location(start)}: {reason}", _CSV, code="data.malformed_row") from error


def _split_at_tabs(file: File) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a .tsv. Warn at its end if a csv writer wrote it: only then are all quotes doubled."""
    doubled, other = 0, False
    for number, line in file.lines():
        cells = line.split("\t")
        if '"' in line and not other:
            quoted = [cell for cell in cells if '"' in cell]
            other = not all(map(_CSV_CELL.fullmatch, quoted))
            doubled += sum('""' in cell[1:-1] for cell in quoted)
        yield number, cells
    if doubled and not other:
        warnings.warn(
            f"{file.where}: every cell with a quote is in quotes and doubles the quotes in it ({doubled} cells), as in "
            "a CSV file. In a .tsv, quotes are ordinary characters and part of the sentence. If they are not, write "
            "the file again without quoting, or with commas as .csv",
            stacklevel=2,
        )


def _jsonl(file: File, columns: Sequence[Column]) -> Numbered:
    for number, line in file.lines():
        where = file.location(number)
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            found = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
            reason = found if line.strip() else "empty line"
            raise CseError(f"{where}: not JSON: {reason}", _JSONL, code="data.malformed_row") from error
        except (ValueError, RecursionError) as error:
            raise CseError(f"{where}: cannot read the JSON: {error}", _JSONL, code="data.malformed_row") from error
        if not isinstance(record, Mapping):
            raise CseError(f"{where}: {shown(record)} instead of an object", _JSONL, code="data.malformed_row")
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
                _find(file.where, opened.schema_arrow.names, column, "give each column a different name")
            for batch in opened.iter_batches(columns=[column.name for column in columns]):
                for values in zip(*(batch.column(column.name).to_pylist() for column in columns), strict=True):
                    row += 1
                    yield row, values
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        after = f"damaged after row {row}" if row else "cannot read the Parquet file"
        reason = " ".join(str(error).split())
        raise CseError(
            f"{file.where}: {after}: {reason}", "write or download the file again", code="data.damaged_file"
        ) from error


_READERS = {
    "pattern": _matched, ".txt": _text, ".tsv": _table, ".csv": _table, ".jsonl": _jsonl, ".json": _jsonl,
    ".parquet": _parquet,
}  # fmt: skip


def _find(where: str, header: Sequence[str], column: Column, rule: str) -> int:
    if column.name not in header:
        if len(header) == 1 and (other := next((mark for mark in ("\t", ";", ",", "|") if mark in header[0]), "")):
            raise CseError(
                f"{where}: the header is one column, {shown(header[0])}, with {other!r} in it",
                rule,
                code="data.no_header",
            )
        _no_column(where, header, column, "column")
    if header.count(column.name) > 1:
        raise CseError(
            f"{where}: {header.count(column.name)} columns have the name '{column.name}'", rule, code="data.same_column"
        )
    return header.index(column.name)


def _no_column(where: str, known: Sequence[str], column: Column, what: str) -> NoReturn:
    alike = [name for name in known if name.strip().casefold() == column.name.strip().casefold()]
    hint = suggestion(column.name, alike or known)
    names = ", ".join(shown(name) for name in known[:5]) + (", …" if len(known) > 5 else "")
    action = f"set `{column.parameter}` to one of {names}" if column.parameter else f"use a file with it, not {names}"
    raise CseError(
        f"{where}: no {what} '{column.name}'.{hint}", action if names else _JSONL, code="data.missing_column"
    )


def shown(cell: object) -> str:
    """Return a cell for a message: its type, or its value if it is short."""
    if cell is None or isinstance(cell, bool):
        return "null" if cell is None else str(cell).lower()
    if isinstance(cell, list | dict | bytes):
        return {list: "a list", dict: "an object", bytes: "binary data"}[type(cell)]
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:57]}…"
