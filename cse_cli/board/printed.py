"""Printed rows as lines of the leaderboard, and which encoder each was computed with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cse_cli.board.runs import Configuration
from cse_cli.board.shape import Row
from cse_cli.spread import Score
from registry import papers
from registry.papers import PaperTables, Table

PUBLISHERS = ("google-bert/", "FacebookAI/")
"""Owners under which the hub keeps the same models that have a bare name too."""
CASELESS = "-uncased"
"""What a model's name says and the papers' tables do not."""


@dataclass(frozen=True)
class Printed:
    """One printed row.

    Args:
        paper: The paper.
        identifier: Of the table.
        name: Of the row.
    """

    paper: PaperTables
    identifier: str
    name: str

    @property
    def table(self) -> Table:
        """The table it stands in."""
        return self.paper.tables[self.identifier]

    @property
    def encoder(self) -> str:
        """What it was computed with, "" where that is not said."""
        return self.table.rows[self.name].encoder

    @property
    def language(self) -> str | None:
        """Of the scores."""
        return self.table.rows[self.name].language or self.table.language

    @property
    def recipe(self) -> str | None:
        """Our recipe that answers it."""
        return self.table.rows[self.name].recipe

    @property
    def place(self) -> str:
        """Where it is printed."""
        return f"{self.paper.short} {self.table.title}"

    def line(self) -> Row:
        """Return it as a line; doubts about cells and about the row become notes."""
        return Row(
            source="paper",
            name=self.name,
            paper=self.paper.key,
            table=self.identifier,
            printed=(self.place,),
            recipe=self.recipe,
            model=self.encoder or None,
            language=self.language,
            scores=self._scores(),
            notes=tuple(flag.note for flag in self.table.doubts(self.name)),
        )

    def _scores(self) -> dict[str, Score]:
        row = self.table.rows[self.name]
        flags = {flag.column: flag for flag in reversed(self.table.doubts(self.name)) if flag.column is not None}
        found: dict[str, Score] = {}
        for column, cell, value, std in zip(self.table.columns, row.cells, row.numbers, row.spreads, strict=True):
            if value is not None:
                flag = flags.get(column.name)
                found[column.name] = Score(
                    mean=value,
                    std=std,
                    marks=("doubtful",) if flag is not None else (),
                    implied=flag.implied if flag is not None and flag.kind in MISPRINTS else None,
                    digits=len(cell.partition(".")[2]),
                )
        return found


MISPRINTS = ("misprint", "illegible")
"""Doubts of which `implied` says what was meant, not what another table prints."""


def reference(score: Score | None) -> float | None:
    """Return the number to compare with: what was meant, where another one was printed by mistake."""
    if score is None:
        return None
    return score.mean if score.implied is None else score.implied


def rows() -> Iterator[Printed]:
    """Yield every printed row of every paper."""
    for key in papers.names():
        paper = papers.load(key)
        for identifier, table in paper.tables.items():
            for name in table.rows:
                yield Printed(paper, identifier, name)


def find(key: str, identifier: str, name: str) -> Printed | None:
    """Return a printed row, or None where there is none of that name today."""
    if key not in papers.names():
        return None
    table = papers.load(key).tables.get(identifier)
    return Printed(papers.load(key), identifier, name) if table is not None and name in table.rows else None


def encoder_of(configuration: Configuration) -> str:
    """Return how the papers' tables call the encoder of our runs; the model's own name where they do not have it."""
    result = configuration.latest
    if result.paper is not None:
        answered = find(result.paper.key, result.paper.table, result.paper.row)
        if answered is not None and answered.encoder:
            return answered.encoder
    return model_name(result.model) or configuration.recipe


def model_name(model: str) -> str:
    """Return the papers' name of a model."""
    bare = next((model.removeprefix(owner) for owner in PUBLISHERS if model.startswith(owner)), model)
    return bare.lower().removesuffix(CASELESS)
