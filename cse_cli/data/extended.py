"""Text of a data set with columns that generators make of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cse_cli.core import paths
from cse_cli.data.cache import noted_facts
from cse_cli.data.columns import Cells, ColumnMaker, ColumnStep, MadeColumn, Making, Sampled
from cse_cli.data.stored import VERSION, Content, store
from cse_cli.data.tokens import Column
from cse_cli.recipe.schema import Part
from registry.errors import CseError


@dataclass(frozen=True)
class Extension:
    """Columns that are made for one data set.

    Args:
        made: Column → its generator, each after the column that it is made from.
        columns: Names of all columns of the result, sorted.
        limit: Maximum number of rows, or None for all.
        content: Digests and counts of the rows that are read.
    """

    made: Mapping[str, Part]
    columns: tuple[str, ...]
    limit: int | None
    content: Content | None = None

    def placed(self, content: Content) -> Extension:
        """Return the columns for rows with this content."""
        return replace(self, content=content)

    @cached_property
    def makers(self) -> dict[str, ColumnMaker]:
        """Column → what makes it."""
        return {name: ColumnMaker(part) for name, part in self.made.items()}

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the data set that are read."""
        wanted = {*self.columns, *(str(part.params.get("column", "text")) for part in self.made.values())}
        return tuple(sorted(wanted - self.made.keys()))

    @cached_property
    def path(self) -> Path:
        """Path of the Arrow file of the result."""
        assert self.content is not None
        keys = [(name, maker.source, maker.key) for name, maker in self.makers.items()]
        read = sorted(self.content.columns.items())
        named = hashlib.sha256(repr((VERSION, read, self.columns, self.limit, keys)).encode()).hexdigest()[:32]
        return paths.cache() / "text" / f"{named}.arrow"

    def known(self) -> Content | None:
        """Return the content of the result, or None if it is not made yet."""
        facts = noted_facts(self.path)
        return None if facts is None else Content.from_facts(facts)

    def read(self, rows: Any, making: Making) -> tuple[Any, Content]:
        """Return the rows with the made columns, and their content.

        Args:
            rows: `datasets.Dataset` of the rows that are not blank.
            making: Devices and callbacks.
        """
        assert self.content is not None
        extended, found = store(self.path, self.columns, lambda: self._tables(rows, making))
        if not found.rows and self.content.rows:
            raise CseError(
                f"the generators of {', '.join(self.makers)} made no text: every cell is blank",
                "check their model and languages",
                code="data.blank_column",
            )
        blanks = self.content.blanks or found.blanks
        return extended, replace(found, blank=found.blank + self.content.blank, blanks=blanks)

    def steps(self, rows: Any) -> list[ColumnStep]:
        """Return the columns to make for the rows that are not blank, with the number of rows that exist."""
        count = self._rows(rows)
        cells: dict[str, Cells] = {name: Column([rows.select_columns([name])]) for name in self.reads}
        found = []
        for name, maker in self.makers.items():
            source, done = cells[maker.source], 0
            if not isinstance(source, Sampled):
                blocks = maker.blocks(source, range(count))
                done = sum(len(block.rows) for block in blocks if block.path.exists())
            found.append(ColumnStep(name, maker, source, count, done))
            cells[name] = MadeColumn(blocks) if done == count else Sampled(source, maker)
        return found

    def _rows(self, rows: Any) -> int:
        return min(len(rows), self.limit or len(rows))

    def _tables(self, rows: Any, making: Making) -> Iterator[Any]:
        """Yield the rows with all columns, after the columns are made one after the other."""
        import pyarrow as pa

        count = self._rows(rows)
        cells: dict[str, Cells] = {name: Column([rows.select_columns([name])]) for name in self.reads}
        for name, maker in self.makers.items():
            cells[name] = maker.make(cells[maker.source], range(count), making)
        for start in range(0, count, 2048):
            part = range(start, min(start + 2048, count))
            yield pa.table({name: pa.array(cells[name].take(part), pa.string()) for name in self.columns})
