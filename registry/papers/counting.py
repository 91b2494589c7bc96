"""How much is stored, and how much of it something answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from registry.papers.cells import Answer
from registry.papers.paper import PaperTables


@dataclass(frozen=True)
class Counts:
    """Printed cells by what answers them.

    Args:
        tables: Tables.
        cells: Cells in which something stands.
        recipe: Cells that a recipe answers as it stands, or whose setting a recipe holds.
        study: Cells that a study answers.
        reasons: Reason why nothing answers → cells, the most frequent first.
        figures: Experiments that are only drawn.
        drawn: Those of them that a study or a recipe draws.
    """

    tables: int
    cells: int
    recipe: int
    study: int
    reasons: dict[str, int] = field(default_factory=dict)
    figures: int = 0
    drawn: int = 0

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
        reasons=dict(_reasons(answers).most_common()),
        figures=len(figures),
        drawn=sum(figure.unanswered is None for figure in figures),
    )


def _reasons(answers: Iterable[Answer]) -> Counter[str]:
    return Counter(answer.text for answer in answers if answer.kind == "reason")
