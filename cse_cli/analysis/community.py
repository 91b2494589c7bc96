"""The community leaderboard: a public list of published results, with your runs among its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.analysis.coverage import Coverage
from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.layouts import ScoreLayout, layouts
from cse_cli.analysis.measured_rows import best_configurations, layout_scores, measured_row
from cse_cli.analysis.papers import encoder_of, model_name
from cse_cli.analysis.score import Mark, Score
from cse_cli.analysis.score_table import ScoreRow, ScoreTable
from cse_cli.core.results import STS_TASKS
from registry import papers
from registry.papers import AVERAGE, FieldRow

LANGUAGE = "en"
"""Language of the list."""
ROUNDED = 0.015
"""Largest difference between a listed average and the mean of its cells that rounding explains."""


def community_tables(
    ran: Sequence[Configuration], coverage: Coverage, encoder: str | None = None, *, every: bool = False
) -> list[ScoreTable]:
    """Return one table for each encoder of the list. `every` shows all configurations, of encoders with runs."""
    layout = next(one for one in layouts(LANGUAGE) if set(one.evaluators) == set(STS_TASKS))
    listed: dict[str, list[FieldRow]] = {}
    for row in papers.field_rows():
        listed.setdefault(row.encoder, []).append(row)
    found = []
    for name, rows in listed.items():
        members = tuple(one for one in ran if community_encoder(one) == model_name(name) and layout.scored(one))
        if encoder in (None, model_name(name)) and (members or not every):
            found.append(_CommunityTable(name, layout, tuple(rows), members, coverage).table(every=every))
    return found


def community_encoder(configuration: Configuration) -> str:
    """Return the encoder under which the list has runs, or would have them. It lists GloVe under BERT base."""
    if configuration.status != "other_model":
        for row in papers.field_rows():
            if row.recipe in configuration.names:
                return model_name(row.encoder)
    return encoder_of(configuration) if configuration.latest.language == LANGUAGE else ""


@dataclass(frozen=True)
class _CommunityTable:
    encoder: str
    layout: ScoreLayout
    listed: tuple[FieldRow, ...]
    members: tuple[Configuration, ...]
    coverage: Coverage

    def table(self, *, every: bool) -> ScoreTable:
        """Return the rows ranked by average, with each measured row below the row that its recipe reproduces."""
        chosen = [(one, 1) for one in self.members] if every else best_configurations(self.members, self.layout)
        own = [one for one in chosen if one[0].status != "other_model"]
        listed = {row.recipe for row in self.listed if row.recipe}
        blocks = []
        for of_list in self.listed:
            row = self._row(of_list)
            below = [self._measured(*one, row, of_list.score) for one in own if of_list.recipe in one[0].names]
            blocks.append([row, *below])
        others = [one for one in chosen if one not in own or listed.isdisjoint(one[0].names)]
        blocks += [[self._measured(*one)] for one in others]
        return ScoreTable(
            kind="community",
            heading=f"{self.encoder}: community leaderboard{self.layout.unit_text}",
            encoder=model_name(self.encoder),
            language=LANGUAGE,
            columns=self.layout.headings,
            rows=tuple(row for block in sorted(blocks, key=self._rank) for row in block),
        )

    def _rank(self, block: Sequence[ScoreRow]) -> tuple[bool, float]:
        score = block[0].scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    def _row(self, listed: FieldRow) -> ScoreRow:
        cells = listed.cells | {AVERAGE: listed.avg}
        doubts: tuple[Mark, ...] = ("doubtful",) if abs(listed.avg - listed.avg_recomputed) > ROUNDED else ()
        scores = {}
        for column in self.layout.columns:
            marks = doubts if column.evaluator == AVERAGE else ()
            std = listed.spreads.get(column.evaluator)
            scores[column.heading] = Score(mean=cells[column.evaluator], std=std, marks=marks)
        return ScoreRow(
            source="community",
            name=listed.method,
            reported_in=("community leaderboard",),
            recipe=listed.recipe or None,
            model=model_name(listed.encoder),
            language=LANGUAGE,
            scores=scores,
            notes=(listed.note,) if listed.note else (),
            coverage=(self.coverage.of_listed(listed),),
        )

    def _measured(
        self, configuration: Configuration, best_of: int, row: ScoreRow | None = None, metric: str | None = None
    ) -> ScoreRow:
        reported = row.scores if row else {}
        scores = layout_scores(configuration, self.layout, self.layout.columns, reported, metric)
        made = measured_row(configuration, scores, None, best_of)
        return made.model_copy(update={"reproduces": row.name if row else None})
