"""A paper: citation, tables as printed, experiments it draws, what is doubtful, and what answers each cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

AVERAGE = "avg"
"""Stands where an evaluator's name would: the mean of the row's other evaluators, each rounded to two decimals.

In a table that scores nothing else it is the mean of the seven English STS sets.
"""

Doubt = Literal[
    "misprint", "illegible", "other_aggregate", "other_metric", "other_split", "bold_not_maximum", "selection_unknown",
    "test_selected", "transductive", "rerun", "text_only", "disagrees", "not_reproducible", "unused", "wording",
]  # fmt: skip


OTHER_QUANTITY: frozenset[Doubt] = frozenset({"other_aggregate", "other_metric", "other_split"})
"""Doubts that leave our score beside a printed one and comparable with none."""


def _split(cells: Any) -> Any:
    return tuple(cells.split()) if isinstance(cells, str) else cells


def _numbers(cells: tuple[str, ...]) -> tuple[float | None, ...]:
    return tuple(None if cell == "-" else float(cell) for cell in cells)


Printed = Annotated[tuple[str, ...], BeforeValidator(_split)]


class PaperModel(BaseModel):
    """Base of everything that is read from the papers' files: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Answer:
    """What stands beside one printed cell.

    Args:
        kind: A recipe as it stands, a study, a data set of the catalogue, or nothing but a reason.
        text: The recipe's, study's or data set's name, or the reason.
    """

    kind: Literal["recipe", "study", "data", "reason"]
    text: str


class Column(PaperModel):
    """One column.

    Args:
        name: Heading as printed.
        evaluator: What our recipes call the same score, `avg` for the row's mean.
        score: Key under which that evaluator reports it, where it is not the table's.
        metric: What the numbers are, where it is not the table's.
        of: The column whose cells this one prints the differences of, and
        minus: the row that they are taken to.
        setting: Dotted path of a recipe, in a table of settings.
        checkpoint: Key of the configuration of the checkpoint that a recipe starts from, in a table of settings.
        held_by: The recipe that holds a table's settings.
        dataset: The data set of the catalogue that holds it, in a table of data.
        unanswered: Why no run gives this column.
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
    unanswered: str | None = None


class Flag(PaperModel):
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


class Row(PaperModel):
    """One printed row.

    Args:
        cells: As printed, in column order, "-" where nothing stands.
        std: Standard deviations printed beside them, in the same way; empty where the paper prints none.
        bold: Headings of the cells printed in bold.
        encoder: What the row was computed with.
        language: Language of the scores, where it differs from the table's.
        data: What it was trained on.
        mark: Sign printed beside the name.
        recipe: Our recipe that answers it, as it stands.
        score: Key under which our evaluators report the row's scores, where it is not the table's or the column's.
        setting: Dotted path of a recipe, in a table of settings.
        held_by: The recipe that holds a table's settings, or column → the recipe.
        split: Split of the columns' data sets that holds it, in a table of data; all of them if left out.
        unanswered: Why nothing answers it.
    """

    cells: Printed
    std: Printed = ()
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
    unanswered: str | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if self.recipe is not None and self.unanswered is not None:
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


class Table(PaperModel):
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
    def _names_what_there_is(self) -> Self:
        headings = {column.name for column in self.columns}
        for name, row in self.rows.items():
            if isinstance(row.held_by, dict) and (unknown := set(row.held_by) - headings):
                raise ValueError(f"row '{name}': held_by names no column: {sorted(unknown)}")
        for column in self.columns:
            if (column.of is None) != (column.minus is None):
                raise ValueError(f"column '{column.name}': `of` and `minus` go together")
            if column.of is not None and (column.of not in headings or column.minus not in self.rows):
                raise ValueError(f"column '{column.name}': `of` names a column and `minus` a row of the table")
        return self

    @model_validator(mode="after")
    def _answered_or_explained(self) -> Self:
        if (self.number is None) == (self.place is None):
            raise ValueError("a table has either its number in the paper or, as `place`, where else it stands")
        for row, column in self.printed():
            if self._answer(self.rows[row], column) is None:
                raise ValueError(
                    f"row '{row}', column '{column.name}': name the recipe, the study or the data set that answers it "
                    "or, as `unanswered`, why none does"
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
        """Return the key under which the column's evaluator reports it; of a row, where that has one of its own."""
        return (self.rows[row].score if row in self.rows else None) or column.score or self.score

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

    def comparable(self, row: str, column: str) -> bool:
        """Return whether our score is the quantity that is printed: by metric, split, aggregate and sample size."""
        other = OTHER_QUANTITY - ({"other_aggregate"} if self.rows[row].score else set())  # ours then is that aggregate
        return not any(flag.kind in other for flag in self.cell_doubts(row, column))


class Quoted(PaperModel):
    """A number that the text quotes of a figure.

    Args:
        what: What it is.
        value: As quoted.
        high: The other end, where a range is quoted.
    """

    what: str
    value: float
    high: float | None = None


class Figure(PaperModel):
    """One experiment that the paper draws.

    Args:
        number: Its number in the paper, such as "4c".
        caption: What it shows, in our words.
        x: What the horizontal axis is.
        y: What the vertical axis is.
        quoted: Numbers that the text gives.
        note: What a reader must know before comparing.
        study: The study that draws ours.
        recipes: Recipes whose runs draw it, where no training differs.
        lacks: What of it ours does not draw.
        unanswered: Why nothing does.
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
    unanswered: str | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if sum(map(bool, (self.study, self.recipes, self.unanswered))) != 1:
            raise ValueError("a figure names the study or the recipes that draw it or, as `unanswered`, why none does")
        return self

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What draws ours."""
        if self.recipes:
            return tuple(Answer("recipe", recipe) for recipe in self.recipes)
        return (Answer("study", self.study) if self.study else Answer("reason", self.unanswered or ""),)


class PaperTables(PaperModel):
    """One paper: its citation, every table as printed, and every experiment that it only draws.

    Args:
        key: File name under `registry/papers/`, and `paper.key` in recipes.
        short: How a heading names it.
        citation: Authors, title, where and when.
        url: Where to read it.
        tables: Identifier → table, in printed order.
        figures: Identifier → figure, in printed order; diagrams of a method are left out.
    """

    key: str
    short: str
    citation: str
    url: str
    tables: dict[str, Table] = Field(min_length=1)
    figures: dict[str, Figure] = Field(default_factory=dict)
