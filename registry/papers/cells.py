"""What tables are made of: columns, rows with their cells as printed, and doubts about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

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


class Printing(BaseModel):
    """What all of this is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Answer:
    """What stands beside one printed cell.

    Args:
        kind: A recipe as it stands, a study, or nothing but a reason.
        text: The recipe's or study's name, or the reason.
    """

    kind: Literal["recipe", "study", "reason"]
    text: str


class Column(Printing):
    """One column.

    Args:
        name: Heading as printed.
        evaluator: What our recipes call the same score, `avg` for the row's mean.
        score: Key under which that evaluator reports it, where it is not the table's.
        metric: What the numbers are, where it is not the table's.
        setting: Dotted path of a recipe, in a table of settings.
        held_by: The recipe that holds a table's settings.
        unanswered: Why no run gives this column.
    """

    name: str
    evaluator: str | None = None
    score: str | None = None
    metric: str | None = None
    setting: str | None = None
    held_by: str | None = None
    unanswered: str | None = None


class Flag(Printing):
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


class Row(Printing):
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
        setting: Dotted path of a recipe, in a table of settings.
        held_by: The recipe that holds a table's settings.
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
    setting: str | None = None
    held_by: str | None = None
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
