"""The shape of a paper's tables: what was printed, what varied, what is doubtful, and which recipe answers a row."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

AVERAGE = "avg"
"""Stands where an evaluator's name would: the mean of the row's other evaluators, each rounded to two decimals.

In a table that scores nothing else it is the mean of the seven English STS sets.
"""

Doubt = Literal[
    "misprint",
    "illegible",
    "other_aggregate",
    "other_split",
    "bold_not_maximum",
    "selection_unknown",
    "test_selected",
    "transductive",
    "rerun",
    "text_only",
    "disagrees",
    "not_reproducible",
    "unused",
    "wording",
]


def _split(cells: Any) -> Any:
    return tuple(cells.split()) if isinstance(cells, str) else cells


def _numbers(cells: tuple[str, ...]) -> tuple[float | None, ...]:
    return tuple(None if cell == "-" else float(cell) for cell in cells)


Printed = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Table):
    """One column.

    Args:
        name: Heading as printed.
        evaluator: What our recipes call the same score, `avg` for the row's mean, None where we have no such score.
    """

    name: str
    evaluator: str | None = None


class Flag(_Table):
    """Something doubtful about a cell, a row or the whole table.

    Args:
        kind: What sort of doubt.
        note: What is doubtful, in words.
        row: The row; None for the whole table.
        column: The column; None for the whole row.
        implied: The value the rest of the paper implies, where there is one.
    """

    kind: Doubt
    note: str
    row: str | None = None
    column: str | None = None
    implied: float | None = None


class Row(_Table):
    """One printed row.

    Args:
        cells: As printed, in column order, "-" where nothing stands.
        std: Standard deviations printed beside them, in the same way; empty where the paper prints none.
        bold: Headings of the cells printed in bold.
        encoder: What the row was computed with.
        language: Language of the scores, where it differs from the table's.
        data: What it was trained on.
        mark: Sign printed beside the name.
        recipe: Our recipe that answers it.
        unanswered: Why no recipe does.
    """

    cells: Printed
    std: Printed = ()
    bold: tuple[str, ...] = ()
    encoder: str = ""
    language: str | None = None
    data: str | None = None
    mark: Literal["diamond", "bullet"] | None = None
    recipe: str | None = None
    unanswered: str | None = None

    @model_validator(mode="after")
    def _answered_or_explained(self) -> Self:
        if (self.recipe is None) == (self.unanswered is None):
            raise ValueError("a row names either the recipe that answers it or, as `unanswered`, why none does")
        return self

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """The cells as numbers, None where nothing was printed."""
        return _numbers(self.cells)

    @property
    def spreads(self) -> tuple[float | None, ...]:
        """The standard deviations as numbers, None where nothing was printed."""
        return _numbers(self.std or ("-",) * len(self.cells))


class Table(_Table):
    """One printed table.

    Args:
        number: Its number in the paper.
        caption: What it shows, in our words.
        metric: What the numbers are.
        score: Key under which our evaluators report that metric.
        aggregate: How several subsets become one number, where that matters.
        varied: What differs from row to row.
        language: Language of the scores.
        columns: In printed order.
        rows: Name → row, in printed order; spelt without the paper's typography.
        flags: Everything doubtful.
    """

    number: int
    caption: str
    metric: str
    score: str = "spearman"
    aggregate: str | None = None
    varied: str
    language: str | None = None
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

    def values(self, row: str) -> dict[str, float | None]:
        """Return heading → number of one row."""
        return dict(zip((c.name for c in self.columns), self.rows[row].numbers, strict=True))

    def doubts(self, row: str) -> tuple[Flag, ...]:
        """Return the flags of one row and of its cells."""
        return tuple(flag for flag in self.flags if flag.row == row)


class PaperTables(_Table):
    """One paper: its citation and every table as printed.

    Args:
        key: File name under `registry/papers/`, and `paper.key` in recipes.
        short: How a heading names it.
        citation: Authors, title, where and when.
        url: Where to read it.
        tables: Identifier → table, in printed order.
    """

    key: str
    short: str
    citation: str
    url: str
    tables: dict[str, Table] = Field(min_length=1)
