"""The papers' tables as printed, what others measured, and how much of it our recipes answer. Light: no torch."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.papers.others import FieldRow, Reproduction, distribution, field_rows, reproductions
from registry.papers.tables import AVERAGE, Answer, Column, Figure, Flag, PaperTables, Quoted, Row, Table

__all__ = [
    "AVERAGE", "Answer", "Column", "Counts", "FieldRow", "Figure", "Flag", "PaperTables", "Quoted", "Reproduction",
    "Row", "Table", "count", "distribution", "field_rows", "load", "names", "reproductions",
]  # fmt: skip

_HERE = Path(__file__).parent
_NO_PAPER = {"reproductions"}


def names() -> list[str]:
    """Return the keys of all papers, sorted."""
    return sorted({path.stem for path in _HERE.glob("*.toml")} - _NO_PAPER)


@cache
def load(key: str) -> PaperTables:
    """Return the tables and figures of one paper.

    Raises:
        UnknownNameError: No such paper; the message suggests the nearest.
    """
    if key not in names():
        raise UnknownNameError(
            f"unknown paper '{key}'.{suggestion(key, names())}", f"the papers here are: {', '.join(names())}"
        )
    with (_HERE / f"{key}.toml").open("rb") as file:
        return PaperTables.model_validate({"key": key, **tomllib.load(file)})


@dataclass(frozen=True)
class Counts:
    """Printed cells by what answers them.

    Args:
        tables: Tables.
        cells: Cells in which something stands.
        recipe: Cells that a recipe answers as it stands, or whose setting a recipe holds.
        study: Cells that a study answers.
        data: Cells whose number a data set of the catalogue holds.
        reasons: Reason why nothing answers → cells, the most frequent first.
        figures: Experiments that are only drawn.
        drawn: Those of them that a study or a recipe draws, all that they show.
        partly: Those that are drawn in part.
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
        """Cells for which only a reason is given."""
        return sum(self.reasons.values())


def count(papers: Iterable[PaperTables]) -> Counts:
    """Return the counts over the tables and figures of some papers."""
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
        drawn=sum(figure.unanswered is None and figure.lacks is None for figure in figures),
        partly=sum(figure.lacks is not None for figure in figures),
    )
