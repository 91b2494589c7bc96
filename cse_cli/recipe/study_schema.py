"""Keys of a study: its rows, columns, grid and figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool
from pydantic_core import PydanticCustomError

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.keys import Keys
from cse_cli.recipe.load import STUDY
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.schema import NonNegativeInt, PositiveInt, Section, String

Seed = Annotated[NonNegativeInt, Field(lt=2**32)]
MOST_SEEDS = 10_000
Scalar = bool | int | float | str
Value = Scalar | list[Scalar]
Grid = dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]]
"""Dotted path → values."""


def _setting(given: object) -> Override:
    """Parse an assignment as in `--set`."""
    if isinstance(given, Override):
        return given
    if not isinstance(given, str):
        raise PydanticCustomError("string_type", "not a string")
    try:
        return Override.parse(given)
    except RecipeError as error:
        raise PydanticCustomError(error.code, error.problems[0].message) from None


class Change(Section):
    """Differences from the recipe.

    Args:
        recipe: Name or path of another recipe.
        set: Overrides as in `--set`.
        unset: Dotted keys to remove, as in `--unset`.
    """

    recipe: String | None = None
    set: tuple[Annotated[Override, BeforeValidator(_setting)], ...] = ()
    unset: tuple[String, ...] = ()


class Row(Change):
    """A row of the table.

    Args:
        row: Name of the row in the paper's table, or any label if the study does not reproduce one.
        reported: Full-size recipe of the row's method. The report shows the difference of its reported average from
            that of the first row.
        tune: Further values to try, as in `StudyTable.tune`. A path of both has the values of the row.
    """

    row: String
    reported: String | None = None
    tune: Grid = Field(default_factory=dict)


class Column(Change):
    """Columns that require separate runs.

    Args:
        names: Names of the columns that these runs fill.
        score: "evaluator.metric" or "avg". Default: that of the study, else of the paper's column.
    """

    names: Annotated[tuple[String, ...], Field(min_length=1)]
    score: String | None = None


class FigureSpec(Section):
    """A figure of a study.

    Args:
        x: Values of the x axis: a dotted path of the recipe, "row" for the rows by name, "difference" for the rows by
            their difference from the first one, "step" for training curves, or "measures.NAME".
        y: Values of the y axis: "evaluator.metric" or "avg". Default: the scores of the cells.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis.
        log_x: Whether the x axis is logarithmic.
        lines: Dotted path. Cells with the same value form one line. Default: one line for each column.
    """

    x: String
    y: String | None = None
    xlabel: String | None = None
    ylabel: String | None = None
    log_x: StrictBool = False
    lines: String | None = None


class StudyTable(Change):
    """The table [study].

    Args:
        title: One line for lists and reports.
        description: Further text.
        paper: "key/identifier" of the table or figure in `registry/papers/` that the study reproduces.
        seeds: Number of seeds (0, 1, …), or an array of seeds.
        score: "evaluator.metric" or "avg" of the cells. Default: those of the paper's columns.
        rows: Rows of the table.
        omit: Names of rows that are left out, for example inherited ones.
        columns: Columns that require separate runs.
        grid: Dotted path → values. Every combination is a row. Replaces `rows`.
        tune: Dotted path → values to try for each row that has its own `tune`. Every combination is a trial. The seeds
            of the row run with the settings of its best trial on the dev split.
        tune_seeds: Seeds of every trial. The study's own `seeds` do not include them.
        figure: Figure of the study.
    """

    title: String
    description: str = ""
    paper: String | None = None
    seeds: Annotated[PositiveInt, Field(le=MOST_SEEDS)] | Annotated[tuple[Seed, ...], Field(min_length=1)] = 3
    score: String | None = None
    rows: tuple[Row, ...] = ()
    omit: tuple[String, ...] = ()
    columns: tuple[Column, ...] = ()
    grid: Grid = Field(default_factory=dict)
    tune: Grid = Field(default_factory=dict)
    tune_seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    figure: FigureSpec | None = None

    @property
    def seed_list(self) -> tuple[int, ...]:
        """All seeds."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def placed_rows(self) -> Iterator[tuple[Keys, Row]]:
        """Yield the path and content of every row that is not omitted."""
        for number, row in enumerate(self.rows):
            if row.row not in self.omit:
                yield (STUDY, "rows", number), row

    @property
    def is_tuned(self) -> bool:
        """Whether any row is tuned before its seeds run."""
        return any(row.tune for _, row in self.placed_rows())

    def tried(self, row: Row) -> Grid:
        """Return the values that are tried for a row: dotted path → values. Empty if the row is not tuned."""
        return {**self.tune, **row.tune} if row.tune else {}

    def score_of(self, column: str) -> str | None:
        """Return the score that the study gives a column, or None if the paper's column defines it."""
        return next((one.score for one in self.columns if column in one.names and one.score), self.score)

    def changes(self) -> Iterator[tuple[Keys, Change]]:
        """Yield the path and content of every table of changes: the study, its rows and its columns."""
        yield (STUDY,), self
        yield from self.placed_rows()
        yield from (((STUDY, "columns", number), column) for number, column in enumerate(self.columns))


class Study(StudyTable):
    """A study with its file.

    Args:
        name: Bare name such as "studies/ifcl_queue_length", or the stem of the file if it has none.
        path: Path of the file.
    """

    name: str
    path: Path

    @property
    def answers(self) -> tuple[str, str] | None:
        """Key of the paper and identifier of its table or figure."""
        if self.paper is None:
            return None
        key, _, identifier = self.paper.partition("/")
        return key, identifier
