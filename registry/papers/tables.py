"""The shape of a paper's tables: what was printed, what varied, what is doubtful, and what answers each cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import model_validator

from registry.papers.cells import Answer, Column, Flag, Printing, Row


class Table(Printing):
    """One printed table.

    Args:
        number: Its number in the paper.
        place: Where it stands, if it is not a table of the paper.
        caption: What it shows, in our words.
        kind: Scores of models, settings they were trained with, or facts about data.
        metric: What the numbers are.
        score: Key under which our evaluators report that metric.
        aggregate: How several subsets become one number, where that matters.
        varied: What differs from row to row.
        language: Language of the scores.
        study: The study that computes it: every cell, but those of a row or column that says why not.
        columns: In printed order.
        rows: Name → row, in printed order; spelt without the paper's typography.
        flags: Everything doubtful.
    """

    number: int | None = None
    place: str | None = None
    caption: str
    kind: Literal["scores", "settings", "data"] = "scores"
    metric: str
    score: str = "spearman"
    aggregate: str | None = None
    varied: str
    language: str | None = None
    study: str | None = None
    columns: tuple[Column, ...]
    rows: dict[str, Row]
    flags: tuple[Flag, ...] = ()

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        headings = {column.name for column in self.columns}
        for name, row in self.rows.items():
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row '{name}' has {len(row.cells)} cells for {len(self.columns)} columns")
            if row.std and len(row.std) != len(row.cells):
                raise ValueError(f"row '{name}' has {len(row.std)} standard deviations for {len(row.cells)} cells")
            if unknown := set(row.bold) - headings:
                raise ValueError(f"row '{name}': bold names no column: {sorted(unknown)}")
        for flag in self.flags:
            if flag.row is not None and flag.row not in self.rows:
                raise ValueError(f"a flag names no row: '{flag.row}'")
            if flag.column is not None and flag.column not in headings:
                raise ValueError(f"a flag names no column: '{flag.column}'")
        return self

    @model_validator(mode="after")
    def _answered_or_explained(self) -> Self:
        if (self.number is None) == (self.place is None):
            raise ValueError("a table has either its number in the paper or, as `place`, where else it stands")
        for row, column in self.printed():
            if self._answer(self.rows[row], column) is None:
                raise ValueError(
                    f"row '{row}', column '{column.name}': name the recipe or the study that answers it or, as "
                    "`unanswered`, why none does"
                )
        return self

    @property
    def title(self) -> str:
        """How a heading names it."""
        return f"Table {self.number}" if self.place is None else self.place

    def printed(self) -> Iterator[tuple[str, Column]]:
        """Yield row and column of every cell in which something stands."""
        for name, row in self.rows.items():
            for column, number in zip(self.columns, row.numbers, strict=True):
                if number is not None:
                    yield name, column

    def answer(self, row: str, column: str) -> Answer:
        """Return what stands beside one printed cell."""
        found = self._answer(self.rows[row], next(c for c in self.columns if c.name == column))
        if found is None:
            raise KeyError(f"nothing is printed in row '{row}', column '{column}'")
        return found

    def _answer(self, row: Row, column: Column) -> Answer | None:
        if reason := row.unanswered or column.unanswered:
            return Answer("reason", reason)
        if self.kind == "settings":
            recipe = row.held_by or column.held_by
            return Answer("recipe", recipe) if recipe and (row.setting or column.setting) else None
        if column.evaluator is None:
            return None
        if self.study is not None:
            return Answer("study", self.study)
        return Answer("recipe", row.recipe) if row.recipe is not None else None

    def score_of(self, column: Column) -> str:
        """Return the key under which the column's evaluator reports it."""
        return column.score or self.score

    def metric_of(self, column: Column) -> str:
        """Return what the column's numbers are."""
        return column.metric or self.metric

    def values(self, row: str) -> dict[str, float | None]:
        """Return heading → number of one row."""
        return dict(zip((c.name for c in self.columns), self.rows[row].numbers, strict=True))

    def doubts(self, row: str) -> tuple[Flag, ...]:
        """Return the flags of one row and of its cells."""
        return tuple(flag for flag in self.flags if flag.row == row)

    def cell_doubts(self, row: str, column: str) -> tuple[Flag, ...]:
        """Return every flag that bears on one cell: its own, its row's, its column's and the whole table's."""
        return tuple(flag for flag in self.flags if flag.row in (None, row) and flag.column in (None, column))
