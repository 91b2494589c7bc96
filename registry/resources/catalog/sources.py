"""Rows of a split, with their number and digest."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from registry.errors import CseError, UnknownNameError, suggestion
from registry.resources.catalog.entries import Kind
from registry.resources.catalog.readers import Column, File, Row, Table, shown


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
        """Yield the requested columns of each row, in this order, as text.

        Raises:
            CseError: If a column is missing, or a row is malformed.
        """
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

        Raises:
            CseError: If rows are missing or malformed.
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
    """Return the rows of a user's .txt, .tsv or .csv file.

    Raises:
        CseError: If it has another format, or its first line has no column names.
    """
    file = File(path)
    return Source(file.header(), (file,))
