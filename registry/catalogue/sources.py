"""A split of a data set, found: its columns, its rows, its row count and digest."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from registry.catalogue.entries import Generated
from registry.catalogue.formats import Row, file_format, open_bytes, read
from registry.errors import CseError, UnknownNameError, suggestion

if TYPE_CHECKING:
    from registry.types import Generator

_BLOCK = 1 << 20


class Scan(NamedTuple):
    """What one pass over a source tells.

    Args:
        rows: Rows, headers left out.
        digest: SHA-256 of the content, unpacked.
    """

    rows: int
    digest: str


class Source(Protocol):
    """Rows of text cells, read as often as asked."""

    @property
    def where(self) -> str:
        """What to call it in messages: a path, or the generator's name."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def expected(self) -> int | None:
        """Rows the catalogue says it has."""

    def read(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the named columns of each row, in that order."""

    def place(self, row: int) -> str:
        """Return where row number `row`, from 1, stands, as messages name it."""

    def scan(self) -> Scan:
        """Count and digest the content."""


@dataclass(frozen=True)
class FileSource:
    """One or more files with the same columns, one after the other.

    Args:
        paths: The files.
        columns: Our names.
        header: Whether a `.tsv` names its columns in its first line.
        source: Our name → the file's name, where they differ.
        expected: Rows the catalogue says there are.
    """

    paths: tuple[Path, ...]
    columns: tuple[str, ...]
    header: bool = True
    source: dict[str, str] = field(default_factory=dict)
    expected: int | None = None

    @property
    def where(self) -> str:
        """The paths."""
        return ", ".join(map(str, self.paths))

    def read(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the named columns of each row, in that order.

        Raises:
            CseError: A column is not there, or a row is malformed.
        """
        require(self, columns)
        for path in self.paths:
            yield from self._read(path, columns)

    def _read(self, path: Path, columns: Sequence[str]) -> Iterator[Row]:
        if self.header or file_format(path) in (".jsonl", ".parquet"):
            return read(path, [self.source.get(column, column) for column in columns], headed=True)
        if list(columns) == list(self.columns):
            return read(path, [str(place) for place in range(len(columns))], headed=False)
        every = read(path, [str(place) for place in range(len(self.columns))], headed=False)
        places = [self.columns.index(column) for column in columns]
        return (tuple(row[place] for place in places) for row in every)

    def place(self, row: int) -> str:
        """Return `path:line` of row number `row`, from 1; rows of a `.csv` may span lines, so it is `path: row n`."""
        for path in self.paths:
            rows = sum(1 for _ in self._read(path, self.columns))
            if row <= rows:
                whole_lines = file_format(path) in (".txt", ".tsv", ".jsonl")
                return f"{path}:{row + self._headed(path)}" if whole_lines else f"{path}: row {row}"
            row -= rows
        return f"{self.where}: row {row}"

    def scan(self) -> Scan:
        """Count and digest the content of the files in one pass.

        Raises:
            CseError: A file cannot be read.
        """
        rows, digest = 0, hashlib.sha256()
        for path in self.paths:
            counted = _count(path, digest)
            rows += sum(1 for _ in self._read(path, self.columns)) if counted is None else counted - self._headed(path)
        return Scan(rows, digest.hexdigest())

    def _headed(self, path: Path) -> int:
        return int(self.header and file_format(path) == ".tsv")


@dataclass(frozen=True)
class GeneratedSource:
    """Rows that a registered generator makes."""

    generator: Generated
    split: str
    columns: tuple[str, ...]
    expected: int | None = None

    @property
    def where(self) -> str:
        """The generator's name."""
        return f"generator '{self.generator.name}'"

    def build(self) -> Generator:
        """Return the generator."""
        from registry.kinds import GENERATORS

        return GENERATORS[self.generator.name].build(self.generator.params)

    def read(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the named columns of each row, in that order.

        Raises:
            CseError: The generator makes no such column.
        """
        require(self, columns)
        for row in self.build().rows(self.split):
            try:
                yield tuple(row[column] for column in columns)
            except KeyError as error:
                raise CseError(f"{self.where}: its rows have no column {error}, but {', '.join(row)}") from error

    def place(self, row: int) -> str:
        """Return the generator's name and the row."""
        return f"{self.where}: row {row}"

    def scan(self) -> Scan:
        """Count and digest the rows."""
        rows, digest = 0, hashlib.sha256()
        for row in self.read(self.columns):
            rows += 1
            digest.update("\t".join(row).encode() + b"\n")
        return Scan(rows, digest.hexdigest())


def require(source: Source, columns: Sequence[str]) -> None:
    """Check that a source has the columns.

    Raises:
        UnknownNameError: It lacks one.
    """
    for column in columns:
        if column not in source.columns:
            raise UnknownNameError(
                f"{source.where}: no column '{column}'.{suggestion(column, source.columns)}",
                f"its columns are {', '.join(source.columns)}",
            )


def checked(source: Source, rows: int) -> int:
    """Return `rows` if it is what the catalogue expects of the source.

    Raises:
        CseError: It is not; the message names both numbers.
    """
    if source.expected is not None and rows != source.expected:
        raise CseError(
            f"{source.where}: {rows} rows where the catalogue expects {source.expected}",
            "the file is cut, changed or another version: fetch it again, or read it as your own text with `data.file`",
        )
    return rows


def _count(path: Path, digest: hashlib._Hash) -> int | None:
    """Feed the content to `digest` and return the number of its lines, or None where a line is not a row."""
    number, last = 0, b"\n"
    try:
        with open_bytes(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                number += block.count(b"\n")
                last = block[-1:]
    except (EOFError, OSError, zlib.error) as error:
        raise CseError(f"{path}: cannot be read to its end: {error}", "fetch the file again") from error
    if file_format(path) in (".csv", ".parquet"):
        return None
    return number + (last != b"\n")
