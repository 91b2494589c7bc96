"""The shape of a study. Text becomes a `Study` in `cse_cli.study.load`, nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from cse_cli.recipe.schema import Count, Flag, Section, Text, Whole

Seed = Annotated[Whole, Field(lt=2**32)]
Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]


class Change(Section):
    """What is different from the recipe.

    Args:
        recipe: Another recipe instead.
        set: As `--set` takes them.
        unset: As `--unset` takes them.
    """

    recipe: Text | None = None
    set: tuple[Text, ...] = ()
    unset: tuple[Text, ...] = ()


class Row(Change):
    """One row of the table.

    Args:
        row: Name of the printed row; any label where no paper's table is answered.
    """

    row: Text


class Column(Change):
    """Columns that runs of their own fill.

    Args:
        names: Headings of the printed columns that these runs score.
        score: "evaluator.metric", or "avg", where neither the paper's column nor the study says which.
    """

    names: Annotated[tuple[Text, ...], Field(min_length=1)]
    score: Text | None = None


class FigureSpec(Section):
    """What is drawn of a study.

    Args:
        x: A dotted path of the recipe, "row" for the rows by name, "step" for curves, or "measures." and the name of a
            measure.
        y: "evaluator.metric" or "avg"; what the cells are about if left out.
        log_x: Logarithmic x axis.
        lines: A dotted path: cells of one value there are one line. The table's columns are if left out.
    """

    x: Text
    y: Text | None = None
    xlabel: Text | None = None
    ylabel: Text | None = None
    log_x: Flag = False
    lines: Text | None = None


class StudyTable(Change):
    """The one table of a study's file.

    Args:
        paper: "key/identifier" of the table or figure it answers, of those in `registry/papers/`.
        seeds: How many (0, 1, …), or which.
        score: "evaluator.metric", or "avg", that cells are about where the paper's columns do not say.
        rows: In printed order.
        columns: Only where columns are settings or recipes too.
        grid: Instead of rows: dotted path → values, every combination of which is a row.
    """

    title: Text
    description: str = ""
    paper: Text | None = None
    seeds: Count | Annotated[tuple[Seed, ...], Field(min_length=1)] = 3
    score: Text | None = None
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    grid: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(default_factory=dict)
    figure: FigureSpec | None = None

    @property
    def seed_list(self) -> tuple[int, ...]:
        """Every seed, a count written out."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


class Study(StudyTable):
    """A study and where it came from.

    Args:
        name: Bare name such as "studies/ifcl_queue_length" where it has one; else the file's stem.
    """

    name: str
    path: Path

    @property
    def answers(self) -> tuple[str, str] | None:
        """Key of the paper, and identifier of the table or figure."""
        if self.paper is None:
            return None
        key, _, identifier = self.paper.partition("/")
        return key, identifier
