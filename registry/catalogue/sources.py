"""A split that was found: its rows, their number and their digest."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from registry.catalogue.entries import Kind
from registry.catalogue.readers import Column, File, Row, Table, shown
from registry.errors import CseError, UnknownNameError, suggestion


class Record(NamedTuple):
    """The wanted cells of one row: text as it stands in the file, or values of the file's own types."""

    table: Table
    number: int
    cells: Row

    @property
    def location(self) -> str:
        """Where the row starts, `path:line`; `path: row n` where there are no lines."""
        return self.table.location(self.number)


@dataclass(frozen=True)
class Source:
    """A split that was found: rows of text cells, read as often as asked.

    Args:
        columns: Names of the columns.
        tables: Where the rows are, one after the other.
        expected: Rows the catalogue says there are.
        sha256: Digest the catalogue knows.
        kind: Of the data set.
        remedy: What to do if rows are missing.
    """

    columns: tuple[str, ...]
    tables: tuple[Table, ...]
    expected: int | None = None
    sha256: str = ""
    kind: Kind = "text"
    remedy: str = "the file is cut, changed or another version: fetch it again, or read it as your own text"

    @property
    def where(self) -> str:
        """What to call it in messages: paths, or the generator's name."""
        return ", ".join(table.where for table in self.tables)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files it is read from, each once; none for what is generated."""
        return tuple(dict.fromkeys(path for table in self.tables for path in table.paths))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield each row, all columns."""
        return self.read(self.columns)

    def read(self, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the named columns of each row, in that order, as text.

        Raises:
            CseError: A column is not there, or a row is malformed.
        """
        self.require(columns)
        wanted = [Column("", name) for name in columns]
        for table in self.tables:
            if table.typed:
                yield from (_as_text(Record(table, *row), columns) for row in table.read(wanted))
            else:
                yield from (cells for _, cells in table.read(wanted))

    def records(self, columns: Sequence[Column]) -> Iterator[Record]:
        """Yield the wanted cells of each row, as they stand in the file, with their place."""
        return (Record(table, *row) for table in self.tables for row in table.read(columns))

    def location(self, row: int) -> str:
        """Return where row number `row`, from 1, stands."""
        return next(islice(self.records([Column("", name) for name in self.columns]), row - 1, None)).location

    @property
    def digest(self) -> str:
        r"""SHA-256 of the rows, the same whatever files they come from; one the catalogue does not know is warned of.

        Cells are joined by TAB, each row ends in "\n", in UTF-8. The column `subset` is left out, which most of the
        hub's copies have lost; scores are written `repr(float(score))`; in what is evaluated on, white space is reduced
        to single blanks, as evaluators read it.

        Raises:
            CseError: Rows are missing or malformed.
        """
        rows, digest = self.scanned
        self.check(rows)
        if self.sha256 and digest != self.sha256:
            warnings.warn(
                f"{self.where}: as many rows as expected, but some differ from the copy this project knows, and "
                f"figures may differ a little: digest {digest}, known {self.sha256}",
                stacklevel=2,
            )
        return digest

    @property
    def known(self) -> bool | None:
        """Whether the rows are those the catalogue knows; None if some are missing or malformed."""
        try:
            rows, digest = self.scanned
        except CseError:
            return None
        return digest == (self.sha256 or digest) if rows == self.expected else None

    @cached_property
    def scanned(self) -> tuple[int, str]:
        """Rows, and their digest, unchecked."""
        columns = [name for name in self.columns if name != "subset"]
        rows, digest = 0, hashlib.sha256()
        for cells in self.read(columns):
            rows += 1
            written = cells if self.kind == "text" else map(_evaluated, columns, cells)
            digest.update("\t".join(written).encode("utf-8", "surrogatepass") + b"\n")
        return rows, digest.hexdigest()

    def check(self, rows: int) -> int:
        """Return `rows` if it is what the catalogue expects.

        Raises:
            CseError: It is not; the message names both numbers.
        """
        if self.expected is not None and rows != self.expected:
            raise CseError(f"{self.where}: {rows} rows where the catalogue expects {self.expected}", self.remedy)
        return rows

    def require(self, columns: Sequence[str]) -> None:
        """Check that it has the columns.

        Raises:
            UnknownNameError: It lacks one.
        """
        require_columns(self.where, self.columns, columns)


def _as_text(record: Record, columns: Sequence[str]) -> tuple[str, ...]:
    for column, cell in zip(columns, record.cells, strict=True):
        if not isinstance(cell, str | int | float):
            raise CseError(f"{record.location}: '{column}' is {shown(cell)}, not text", "fetch or write the file again")
    return tuple(map(str, record.cells))


def _evaluated(column: str, cell: str) -> str:
    try:
        return repr(float(cell)) if column == "score" else " ".join(cell.split())
    except ValueError:
        return cell  # `read_pairs` tells of it


def own_source(path: Path) -> Source:
    """Return a .txt, .tsv or .csv of the user's own, with the columns that it names.

    Raises:
        CseError: It is of another format, or its first line does not name columns.
    """
    file = File(path)
    return Source(file.header(), (file,))


def require_columns(where: str, there: Collection[str], wanted: Sequence[str]) -> None:
    """Check that what `where` names has the columns wanted.

    Raises:
        UnknownNameError: It lacks one.
    """
    for column in wanted:
        if column not in there:
            raise UnknownNameError(
                f"{where}: no column '{column}'.{suggestion(column, there)}", f"its columns are {', '.join(there)}"
            )
