"""Rows of text in Arrow files, without blank rows, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.data.cache import Facts, cached
from cse_cli.data.files import without_blanks
from cse_cli.data.tokens import read_arrow, write_arrow

SHOWN = 5
"""Number of blank rows whose place is reported."""

VERSION = "5"
"""Part of the key of every stored text. Raise it if the same files give other rows or facts."""


@dataclass(frozen=True)
class Content:
    """Digests and counts of the rows of a part.

    Args:
        columns: Digest of the cells of each column and their lengths, blank rows excluded.
        blank: Number of blank rows, which are skipped.
        rows: Number of other rows.
        blanks: Number and column of the first blank rows. Rows are counted from 1, without the header.
    """

    columns: dict[str, str]
    blank: int
    rows: int
    blanks: tuple[tuple[int, str], ...] = ()

    @property
    def notice(self) -> str:
        """Remark about the blank rows for the user, or an empty string without any."""
        if not self.blank:
            return ""
        lines = [*self.columns] == ["text"]
        named = [str(row) if lines else f"{row} ({column})" for row, column in self.blanks]
        more = ", …" if len(named) < self.blank else ""
        noun = "line" if lines else "row"
        return f"{self.blank:,} blank {noun}{'s'[: self.blank != 1]} skipped: {', '.join(named)}{more}"

    @classmethod
    def from_facts(cls, facts: Facts) -> Content:
        """Return the content that is noted with an Arrow file."""
        blanks = tuple((row, column) for row, column in facts["blanks"])
        return cls(facts["columns"], facts["blank"], facts["rows"], blanks)


def store(path: Path, columns: Sequence[str], tables: Callable[[], Iterable[Any]]) -> tuple[Any, Content]:
    """Return the rows of tables as a `datasets.Dataset`, from an Arrow file that is written first if it is missing.

    Args:
        path: Path of the file.
        columns: Names of the columns.
        tables: Returns the tables, blank rows included. Not called if the file exists.
    """
    import pyarrow as pa

    def write(draft: Path) -> Facts:
        reader = RowReader(columns)
        write_arrow(draft, pa.schema([(name, pa.string()) for name in columns]), reader.read(tables()))
        return reader.facts

    content = Content.from_facts(cached(path, write))
    return read_arrow(path), content


class RowReader:
    """Removes blank rows from tables and computes the digests of their content."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._each = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
        self._blank = self._rows = 0
        self._blanks: list[tuple[int, str]] = []

    def read(self, tables: Iterable[Any]) -> Iterator[Any]:
        """Yield the tables without their blank rows."""
        import pyarrow.compute as pc

        for table in tables:
            kept = without_blanks(table)
            for name, (lengths, content) in self._each.items():  # independent of the size of the tables
                sizes = pc.binary_length(kept.column(name)).combine_chunks().to_numpy(zero_copy_only=False)
                lengths.update(sizes.astype("<i4").tobytes())
                content.update("".join(kept.column(name).to_pylist()).encode("utf-8", "surrogatepass"))
            if len(kept) < len(table) and len(self._blanks) < SHOWN:
                self._blanks += self._find_blanks(table)[: SHOWN - len(self._blanks)]
            self._blank += len(table) - len(kept)
            self._rows += len(kept)
            yield kept

    def _find_blanks(self, table: Any) -> list[tuple[int, str]]:
        """Return number and column of the rows with a blank cell."""
        first = self._blank + self._rows + 1
        found = {
            row: name
            for name in reversed(table.column_names)
            for row, cell in enumerate(table.column(name).to_pylist(), start=first)
            if not cell.strip()
        }
        return sorted(found.items())

    @property
    def facts(self) -> Facts:
        """Fields of `Content` for the rows read so far."""
        columns = {}
        for name, (lengths, content) in self._each.items():
            columns[name] = hashlib.sha256(lengths.digest() + content.digest()).hexdigest()
        return {
            "columns": columns,
            "blank": self._blank,
            "rows": self._rows,
            "blanks": self._blanks,
        }
