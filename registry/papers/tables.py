"""Reported tables and figures of papers, with doubts and the recipes that reproduce them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from registry.errors import UnknownNameError, suggestion

AVERAGE = "avg"
"""Pseudo-evaluator for the mean of the other evaluators in the row, each rounded to two decimals.

In a table without other scores, it is the mean of the seven English STS sets.
"""

Doubt = Literal[
    "misprint", "illegible", "other_aggregate", "other_metric", "other_split", "bold_not_maximum", "selection_unknown",
    "test_selected", "transductive", "rerun", "text_only", "disagrees", "not_reproducible", "unused", "wording",
]  # fmt: skip

OTHER_QUANTITY: frozenset[Doubt] = frozenset({"other_aggregate", "other_metric", "other_split"})
"""Doubts that make a measured score not comparable with the reported one."""


def _numbers(cells: tuple[str, ...]) -> tuple[float | None, ...]:
    return tuple(None if cell == "-" else float(cell) for cell in cells)


Printed = Annotated[
    tuple[str, ...], BeforeValidator(lambda cells: tuple(cells.split()) if isinstance(cells, str) else cells)
]


class PaperModel(BaseModel):
    """Base class for data in the files of papers. Rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Answer:
    """Reproduction of one reported cell.

    Args:
        kind: Recipe, study or data set that reproduces the cell, or the reason why none does.
        text: Name of the recipe, study or data set, or the reason.
    """

    kind: Literal["recipe", "study", "data", "reason"]
    text: str


class Column(PaperModel):
    """One column.

    Args:
        name: Heading in the paper.
        evaluator: Evaluator with the same score, or `avg` for the mean of the row.
        score: Key of the score in that evaluator, if it differs from that of the table.
        metric: Metric, if it differs from that of the table.
        of: Column whose differences this column contains.
        minus: Row that is subtracted. Requires `of`.
        setting: Dotted key of a recipe, in a table of settings.
        checkpoint: Key in the configuration of a recipe's checkpoint, in a table of settings.
        held_by: Recipe with the settings of the table.
        dataset: Data set of the catalog, in a table of data.
        not_reproduced_because: Reason why no run reproduces the column.
    """

    name: str
    evaluator: str | None = None
    score: str | None = None
    metric: str | None = None
    of: str | None = None
    minus: str | None = None
    setting: str | None = None
    checkpoint: str | None = None
    held_by: str | None = None
    dataset: str | None = None
    not_reproduced_because: str | None = None


class Flag(PaperModel):
    """Something doubtful about a cell, a row or the whole table.

    Args:
        kind: Kind of doubt.
        note: Explanation.
        row: Row, or None for the whole table.
        column: Column, or None for the whole row.
        implied: Value that the rest of the paper implies, or None.
    """

    kind: Doubt
    note: str
    row: str | None = None
    column: str | None = None
    implied: float | None = None


class Row(PaperModel):
    """One row.

    Args:
        cells: Reported values in the order of the columns, "-" for an empty cell.
        std: Reported standard deviations in the same form. Empty if the paper reports none.
        runs: Number of runs behind each cell. 1 also if the paper does not state it.
        best: Whether the cells are the best of these runs instead of their mean.
        bold: Headings of the cells in bold.
        encoder: Encoder of the row.
        language: Language of the scores, if it differs from that of the table.
        data: Training data.
        mark: Sign after the name in the paper.
        recipe: Recipe that reproduces the row.
        score: Key of the scores in the evaluators, if it differs from that of the table and the column.
        setting: Dotted key of a recipe, in a table of settings.
        held_by: Recipe with the settings, or column → recipe.
        split: Split of the data sets of the columns, in a table of data. Default: all splits.
        not_reproduced_because: Reason why the row is not reproduced.
    """

    cells: Printed
    std: Printed = ()
    runs: int = Field(1, ge=1)
    best: bool = False
    bold: tuple[str, ...] = ()
    encoder: str = ""
    language: str | None = None
    data: str | None = None
    mark: Literal["diamond", "bullet"] | None = None
    recipe: str | None = None
    score: str | None = None
    setting: str | None = None
    held_by: str | dict[str, str] | None = None
    split: str | None = None
    not_reproduced_because: str | None = None

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """Cells as numbers, None for an empty cell."""
        return _numbers(self.cells)

    @property
    def spreads(self) -> tuple[float | None, ...]:
        """Standard deviations as numbers, None for an empty cell."""
        return _numbers(self.std or ("-",) * len(self.cells))


class Table(PaperModel):
    """One table.

    Args:
        number: Number in the paper.
        place: Place in the paper, if it is not a numbered table.
        caption: Caption in the words of this project.
        kind: Contents: scores of models, settings of their training, or properties of data.
        metric: Metric of the numbers.
        score: Key of the metric in the evaluators.
        aggregate: Aggregation of subsets, if it is relevant.
        varied: Difference between the rows.
        language: Language of the scores.
        study: Study that reproduces all cells, except those with `not_reproduced_because`.
        columns: Columns in the order of the paper.
        rows: Name → row in the order of the paper. Names have no typography.
        flags: Doubts.
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

    @property
    def title(self) -> str:
        """Name for headings."""
        return f"Table {self.number}" if self.place is None else self.place

    def printed(self) -> Iterator[tuple[str, Column]]:
        """Yield row and column of all cells that are not empty."""
        for name, row in self.rows.items():
            for column, number in zip(self.columns, row.numbers, strict=True):
                if number is not None:
                    yield name, column

    def answer(self, row_name: str, column_name: str) -> Answer:
        """Return the reproduction of one reported cell."""
        row, column = self.rows[row_name], next(c for c in self.columns if c.name == column_name)
        if reason := row.not_reproduced_because or column.not_reproduced_because:
            return Answer("reason", reason)
        if self.kind == "settings":
            by_column = row.held_by.get(column.name) if isinstance(row.held_by, dict) else row.held_by
            recipe = by_column or column.held_by
            if recipe and (row.setting or column.setting or column.checkpoint):
                return Answer("recipe", recipe)
        elif self.kind == "data" and column.dataset:
            return Answer("data", f"{column.dataset}/{row.split}" if row.split else column.dataset)
        elif column.evaluator is not None or column.minus is not None:
            if self.study is not None:
                return Answer("study", self.study)
            if row.recipe is not None:
                return Answer("recipe", row.recipe)
        raise KeyError(f"nothing reproduces the cell in row '{row_name}', column '{column_name}'")

    def score_of(self, column: Column, row: str | None = None) -> str:
        """Return the key of the score in the column's evaluator. That of the row takes precedence."""
        return (self.rows[row].score if row in self.rows else None) or column.score or self.score

    def values(self, row: str) -> dict[str, float | None]:
        """Return heading → number of one row."""
        return dict(zip((c.name for c in self.columns), self.rows[row].numbers, strict=True))

    def doubts(self, row: str) -> tuple[Flag, ...]:
        """Return the flags of one row and of its cells."""
        return tuple(flag for flag in self.flags if flag.row == row)

    def cell_doubts(self, row: str, column: str) -> tuple[Flag, ...]:
        """Return the flags of one cell, its row, its column and the table."""
        return tuple(flag for flag in self.flags if flag.row in (None, row) and flag.column in (None, column))

    def comparable(self, row: str, column: str) -> bool:
        """Return whether a measured score has the metric, split and aggregation of the reported one."""
        other = OTHER_QUANTITY - ({"other_aggregate"} if self.rows[row].score else set())  # `score` is that aggregate
        return not any(flag.kind in other for flag in self.cell_doubts(row, column))


class Quoted(PaperModel):
    """A number of a figure that the text quotes.

    Args:
        what: Meaning of the number.
        value: Quoted value.
        high: Upper end of a quoted range.
    """

    what: str
    value: float
    high: float | None = None


class Figure(PaperModel):
    """One figure.

    Args:
        number: Number in the paper, such as "4c".
        caption: Caption in the words of this project.
        x: Quantity on the horizontal axis.
        y: Quantity on the vertical axis.
        quoted: Numbers in the text.
        note: Information that is necessary for a comparison.
        study: Study that reproduces the figure.
        recipes: Recipes that reproduce the figure without further training.
        lacks: Part of the figure that is not reproduced.
        not_reproduced_because: Reason why the figure is not reproduced.
    """

    number: str
    caption: str
    x: str
    y: str
    quoted: tuple[Quoted, ...] = ()
    note: str = ""
    study: str | None = None
    recipes: tuple[str, ...] = ()
    lacks: str | None = None
    not_reproduced_because: str | None = None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Reproductions of the figure."""
        if self.recipes:
            return tuple(Answer("recipe", recipe) for recipe in self.recipes)
        return (Answer("study", self.study) if self.study else Answer("reason", self.not_reproduced_because or ""),)


class PaperTables(PaperModel):
    """One paper with its tables and figures.

    Args:
        key: File name in `registry/papers/`, and `paper.key` in recipes.
        short: Name for headings.
        citation: Authors, title, venue and year.
        url: Address of the paper.
        tables: Identifier → table, in the order of the paper.
        figures: Identifier → figure with results, in the order of the paper.
    """

    key: str
    short: str
    citation: str
    url: str
    tables: dict[str, Table] = Field(min_length=1)
    figures: dict[str, Figure] = Field(default_factory=dict)


_HERE = Path(__file__).parent
_NO_PAPER = {"doubts", "measured", "reproductions"}


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted({path.stem for path in _HERE.glob("*.toml")} - _NO_PAPER)


@cache
def load(key: str) -> PaperTables:
    """Return the tables and figures of one paper."""
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}",
            f"use one of {', '.join(names())}",
            code="papers.unknown",
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})
