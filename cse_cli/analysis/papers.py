"""Reported rows of the papers, and results of others, as rows of score tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cse_cli.analysis.score_table import Score, ScoreRow
from registry import papers
from registry.papers import PaperTables, Reproduction, Table

if TYPE_CHECKING:
    from cse_cli.analysis.experiments import Configuration
    from cse_cli.analysis.layouts import ScoreLayout

PUBLISHERS = ("google-bert/", "FacebookAI/")
"""Owners of models on the Hub that also have a name without owner."""
CASELESS = "-uncased"
"""Suffix of model names that the papers' tables omit."""
MISPRINTS = ("misprint", "illegible")
"""Kinds of doubt whose `implied` value is the intended one. For other kinds it is the value in another table."""


@dataclass(frozen=True)
class ReportedRow:
    """A row of a paper's table: paper, identifier of the table, name of the row."""

    paper: PaperTables
    identifier: str
    name: str

    @property
    def table(self) -> Table:
        """Table of the row."""
        return self.paper.tables[self.identifier]

    @property
    def encoder(self) -> str:
        """Encoder of the scores, or an empty string."""
        return self.table.rows[self.name].encoder

    @property
    def language(self) -> str | None:
        """Language of the scores."""
        return self.table.rows[self.name].language or self.table.language

    @property
    def recipe(self) -> str | None:
        """Recipe that reproduces the row."""
        return self.table.rows[self.name].recipe

    def score_row(self) -> ScoreRow:
        """Return the row with doubts about it and its cells as notes."""
        return ScoreRow(
            source="paper",
            name=self.name,
            paper=self.paper.key,
            table=self.identifier,
            reported_in=(f"{self.paper.short} {self.table.title}",),
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
                    comparable=self.table.comparable(self.name, column.name),
                    marks=("doubtful",) if flag is not None else (),
                    implied=flag.implied if flag is not None and flag.kind in MISPRINTS else None,
                    digits=len(cell.partition(".")[2]),
                )
        return found


def reported_rows() -> Iterator[ReportedRow]:
    """Yield every row of every paper's tables."""
    for key in papers.names():
        paper = papers.load(key)
        yield from (ReportedRow(paper, identifier, name) for identifier, of in paper.tables.items() for name in of.rows)


def find_reported_row(key: str, identifier: str, name: str) -> ReportedRow | None:
    """Return a reported row, or None if it does not exist."""
    table = papers.load(key).tables.get(identifier) if key in papers.names() else None
    return ReportedRow(papers.load(key), identifier, name) if table is not None and name in table.rows else None


def reported_encoders() -> set[str]:
    """Return every encoder that a paper reports scores of."""
    return {row.encoder for row in reported_rows()} - {""}


def encoder_of(configuration: Configuration) -> str:
    """Return the papers' name for the encoder of runs, or the name of their model if no paper has it."""
    result = configuration.latest
    if (paper := result.paper) is not None:
        reproduced = find_reported_row(paper.key, paper.table, paper.row)
        if reproduced is not None and reproduced.encoder:
            return reproduced.encoder
    return model_name(result.model) or configuration.recipe


def model_name(model: str) -> str:
    """Return the papers' name of a model."""
    bare = next((model.removeprefix(owner) for owner in PUBLISHERS if model.startswith(owner)), model)
    return bare.lower().removesuffix(CASELESS)


def reported_for(encoder: str, language: str, layout: ScoreLayout) -> list[ScoreRow]:
    """Return the reported rows of an encoder from tables that have all columns."""
    return [
        row.score_row().model_copy(update={"scores": layout.reported_scores(row)})
        for row in reported_rows()
        if (row.encoder, row.language) == (encoder, language) and layout.covered_by(row.table)
    ]


def merge_equal(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return rows with equal scores as one row, because papers copy baselines from each other."""
    found: dict[tuple[tuple[str, float, float | None], ...], ScoreRow] = {}
    for row in rows:
        key = tuple((heading, score.mean, score.std) for heading, score in row.scores.items())
        first = found.setdefault(key, row)
        if first is not row:
            found[key] = first.model_copy(
                update={
                    "reported_in": tuple(dict.fromkeys([*first.reported_in, *row.reported_in])),
                    "notes": tuple(dict.fromkeys([*first.notes, *row.notes])),
                    "recipe": first.recipe or row.recipe,
                }
            )
    return list(found.values())


def reproductions_of(recipes: Iterable[str | None], layout: ScoreLayout) -> list[ScoreRow]:
    """Return results of others with the methods of recipes, one row for each source."""
    headings = {column.evaluator: column.heading for column in layout.columns}
    wanted = set(recipes)
    sources: dict[tuple[str, str], list[Reproduction]] = {}
    for one in papers.reproductions():
        if one.recipe in wanted:
            sources.setdefault((one.recipe, one.source), []).append(one)
    rows = (_reproduction(measured, headings) for measured in sources.values())
    return [row for row in rows if row.scores]


def _reproduction(measured: list[Reproduction], headings: dict[str, str]) -> ScoreRow:
    first = measured[0]
    ranges = ", ".join(f"{one.score} {one.low:.2f} to {one.high:.2f}" for one in measured)
    runs = "one run" if first.n == 1 else f"{first.n} runs ({ranges})"
    notes = dict.fromkeys([f"{runs}, {first.source}", *(one.note for one in measured if one.note)])
    scores = {
        headings[one.score]: Score(mean=one.mean, std=one.std, n=one.n, low=one.low, high=one.high)
        for one in measured
        if one.score in headings
    }
    return ScoreRow(
        source="reproduction",
        name=f"{first.paper}: reproduction by others",
        reported_in=(first.source,),
        recipe=first.recipe,
        scores=scores,
        notes=("; ".join(notes),),
    )
