"""Tables of papers, results of reproductions, and the recipes that reproduce them. Does not import torch."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.papers.badges import Badge, badge_of
from registry.papers.doubts import DoubtfulPoint, doubtful_points
from registry.papers.measured import MeasuredRow, measured_rows
from registry.papers.others import (
    COMMUNITY,
    LISTS,
    FieldRow,
    Reproduction,
    distribution,
    field_rows,
    listed_rows,
    reproductions,
)
from registry.papers.tables import AVERAGE, Answer, Column, Figure, Flag, PaperTables, Quoted, Row, Table

__all__ = [
    "AVERAGE", "COMMUNITY", "LISTS", "Answer", "Badge", "Column", "Counts", "DoubtfulPoint", "FieldRow", "Figure",
    "Flag", "MeasuredRow", "PaperTables", "Quoted", "Reproduction", "Row", "Table", "badge_of", "count",
    "distribution", "doubtful_points", "field_rows", "listed_rows", "load", "measured_rows", "names",
    "reproductions",
]  # fmt: skip

_HERE = Path(__file__).parent
_NO_PAPER = {"doubts", "measured", "reproductions"}


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted({path.stem for path in _HERE.glob("*.toml")} - _NO_PAPER)


@cache
def load(key: str) -> PaperTables:
    """Return the tables and figures of one paper.

    Raises:
        UnknownNameError: If it does not exist. The message suggests the closest name.
    """
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}",
            f"use one of {', '.join(names())}",
            code="papers.unknown",
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})


@dataclass(frozen=True)
class Counts:
    """Numbers of reported cells by the recipe or study that reproduces them.

    Args:
        tables: Number of tables.
        cells: Number of cells that are not empty.
        recipe: Number of cells that a recipe reproduces, or whose setting a recipe contains.
        study: Number of cells that a study reproduces.
        data: Number of cells whose value is a property of a data set in the catalog.
        reasons: Reason why cells are not reproduced → number of cells, the most frequent first.
        figures: Number of figures.
        drawn: Number of figures that a study or recipe reproduces completely.
        partly: Number of figures that are reproduced in part.
    """

    tables: int
    cells: int
    recipe: int
    study: int
    data: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    figures: int = 0
    drawn: int = 0
    partly: int = 0

    @property
    def reason(self) -> int:
        """Number of cells that are not reproduced."""
        return sum(self.reasons.values())


def count(papers: Iterable[PaperTables]) -> Counts:
    """Return the counts over the tables and figures of papers."""
    held = list(papers)
    tables = [table for paper in held for table in paper.tables.values()]
    answers = [table.answer(row, column.name) for table in tables for row, column in table.printed()]
    figures = [figure for paper in held for figure in paper.figures.values()]
    kinds = Counter(answer.kind for answer in answers)
    return Counts(
        tables=len(tables),
        cells=len(answers),
        recipe=kinds["recipe"],
        study=kinds["study"],
        data=kinds["data"],
        reasons=dict(Counter(answer.text for answer in answers if answer.kind == "reason").most_common()),
        figures=len(figures),
        drawn=sum(figure.not_reproduced_because is None and figure.lacks is None for figure in figures),
        partly=sum(figure.lacks is not None for figure in figures),
    )
