"""Rows of text in Arrow files, without blank rows, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.data.cache import Facts, cached
from cse_cli.data.files import without_blanks
from cse_cli.data.tokens import write_arrow


@dataclass(frozen=True)
class Content:
    """Digests and counts of the rows of a part.

    Args:
        digest: SHA-256 of the content as defined by `Source.digest`, blank rows included.
        columns: Digest of the cells of each column, blank rows excluded.
        blank: Number of blank rows, which are skipped.
        rows: Number of other rows.
    """

    digest: str
    columns: dict[str, str]
    blank: int
    rows: int

    @classmethod
    def from_facts(cls, facts: Facts) -> Content:
        """Return the content that is noted with an Arrow file."""
        return cls(facts["digest"], facts["columns"], facts["blank"], facts["rows"])


def store(path: Path, columns: Sequence[str], tables: Callable[[], Iterable[Any]]) -> tuple[Any, Content]:
    """Return the rows of tables as a `datasets.Dataset`, from an Arrow file that is written first if it is missing.

    Args:
        path: Path of the file.
        columns: Names of the columns.
        tables: Returns the tables, blank rows included. Not called if the file exists.
    """
    import datasets
    import pyarrow as pa

    def write(draft: Path) -> Facts:
        reader = RowReader(columns)
        write_arrow(draft, pa.schema([(name, pa.string()) for name in columns]), reader.read(tables()))
        return reader.facts

    content = Content.from_facts(cached(path, write))
    return datasets.Dataset.from_file(str(path)), content


class RowReader:
    """Removes blank rows from tables and computes the digests of their content."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = [name for name in columns if name != "subset"]
        self._whole = hashlib.sha256()
        self._each = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
        self._blank = self._rows = 0

    def read(self, tables: Iterable[Any]) -> Iterator[Any]:
        """Yield the tables without their blank rows."""
        import pyarrow.compute as pc

        for table in tables:
            cells = [table.column(name).to_pylist() for name in self._columns]
            lines = cells[0] if len(cells) == 1 else map("\t".join, zip(*cells, strict=True))
            self._whole.update("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
            kept = without_blanks(table)
            for name, (lengths, content) in self._each.items():  # independent of the size of the tables
                sizes = pc.binary_length(kept.column(name)).combine_chunks().to_numpy(zero_copy_only=False)
                lengths.update(sizes.astype("<i4").tobytes())
                content.update("".join(kept.column(name).to_pylist()).encode("utf-8", "surrogatepass"))
            self._blank += len(table) - len(kept)
            self._rows += len(kept)
            yield kept

    @property
    def facts(self) -> Facts:
        """Fields of `Content` for the rows read so far."""
        columns = {}
        for name, (lengths, content) in self._each.items():
            columns[name] = hashlib.sha256(lengths.digest() + content.digest()).hexdigest()
        return {"digest": self._whole.hexdigest(), "columns": columns, "blank": self._blank, "rows": self._rows}
