"""Reported tables and figures of papers, with doubts and the recipes that reproduce them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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


def _split(cells: Any) -> Any:
    return tuple(cells.split()) if isinstance(cells, str) else cells


def _numbers(cells: tuple[str, ...]) -> tuple[float | None, ...]:
    return tuple(None if cell == "-" else float(cell) for cell in cells)


Printed = Annotated[tuple[str, ...], BeforeValidator(_split)]


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

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if self.recipe is not None and self.not_reproduced_because is not None:
            raise ValueError("a row has either `recipe` or `not_reproduced_because`")
        return self

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

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        headings = {column.name for column in self.columns}
        for name, row in self.rows.items():
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row '{name}' has {len(row.cells)} cells for {len(self.columns)} columns")
            if row.std and len(row.std) != len(row.cells):
                raise ValueError(f"row '{name}' has {len(row.std)} standard deviations for {len(row.cells)} cells")
            if unknown := set(row.bold) - headings:
                raise ValueError(f"row '{name}': bold contains unknown columns: {sorted(unknown)}")
        for flag in self.flags:
            if flag.row is not None and flag.row not in self.rows:
                raise ValueError(f"a flag has an unknown row: '{flag.row}'")
            if flag.column is not None and flag.column not in headings:
                raise ValueError(f"a flag has an unknown column: '{flag.column}'")
        return self

    @model_validator(mode="after")
    def _names_what_there_is(self) -> Self:
        headings = {column.name for column in self.columns}
        for name, row in self.rows.items():
            if isinstance(row.held_by, dict) and (unknown := set(row.held_by) - headings):
                raise ValueError(f"row '{name}': held_by contains unknown columns: {sorted(unknown)}")
        for column in self.columns:
            if (column.of is None) != (column.minus is None):
                raise ValueError(f"column '{column.name}': `of` and `minus` require each other")
            if column.of is not None and (column.of not in headings or column.minus not in self.rows):
                raise ValueError(f"column '{column.name}': `of` must be a column and `minus` a row of the table")
        return self

    @model_validator(mode="after")
    def _answered_or_explained(self) -> Self:
        if (self.number is None) == (self.place is None):
            raise ValueError("a table has either `number` or `place`")
        for row, column in self.printed():
            if self._answer(self.rows[row], column) is None:
                raise ValueError(
                    f"row '{row}', column '{column.name}': set the recipe, study or data set that reproduces it, or "
                    "`not_reproduced_because`"
                )
        return self

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

    def answer(self, row: str, column: str) -> Answer:
        """Return the reproduction of one reported cell."""
        found = self._answer(self.rows[row], next(c for c in self.columns if c.name == column))
        if found is None:
            raise KeyError(f"the cell in row '{row}', column '{column}' is empty")
        return found

    def _answer(self, row: Row, column: Column) -> Answer | None:
        if reason := row.not_reproduced_because or column.not_reproduced_because:
            return Answer("reason", reason)
        if self.kind == "settings":
            by_column = row.held_by.get(column.name) if isinstance(row.held_by, dict) else row.held_by
            recipe = by_column or column.held_by
            return Answer("recipe", recipe) if recipe and (row.setting or column.setting or column.checkpoint) else None
        if self.kind == "data":
            split = f"/{row.split}" if row.split else ""
            return Answer("data", f"{column.dataset}{split}") if column.dataset else None
        if column.evaluator is None and column.minus is None:
            return None
        if self.study is not None:
            return Answer("study", self.study)
        return Answer("recipe", row.recipe) if row.recipe is not None else None

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

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if sum(map(bool, (self.study, self.recipes, self.not_reproduced_because))) != 1:
            raise ValueError("a figure has exactly one of `study`, `recipes` and `not_reproduced_because`")
        return self

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
