"""The community leaderboard: a public list of published results, with your runs among its rows."""

from __future__ import annotations

from collections.abc import Sequence

from cse_cli.analysis.coverage import Coverage
from cse_cli.analysis.encoder_table import Chosen, layout_scores, measured_row, rank_by, shown_configurations
from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.papers import ScoreLayout, encoder_of, layouts, model_name
from cse_cli.analysis.score_table import Mark, Score, ScoreRow, ScoreTable
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
        members = [one for one in ran if community_encoder(one) == model_name(name) and layout.scored(one)]
        if encoder in (None, model_name(name)) and (members or not every):
            chosen = shown_configurations(members, layout, every=every)
            found.append(_table(name, layout, [(row, _listed_row(row, layout, coverage)) for row in rows], chosen))
    return found


def community_encoder(configuration: Configuration) -> str:
    """Return the encoder under which the list has runs, or would have them. It lists GloVe under BERT base."""
    if configuration.status != "other_model":
        for row in papers.field_rows():
            if row.recipe in configuration.names:
                return model_name(row.encoder)
    return encoder_of(configuration) if configuration.latest.language == LANGUAGE else ""


def _table(
    encoder: str, layout: ScoreLayout, listed: Sequence[tuple[FieldRow, ScoreRow]], chosen: Chosen
) -> ScoreTable:
    """Return the rows ranked by average, with each measured row below the row that its recipe reproduces."""
    own = [one for one in chosen if one[0].status != "other_model"]
    recipes = {field.recipe for field, _ in listed if field.recipe}
    blocks = []
    for field, row in listed:
        below = [_measured(layout, *one, row, field.score) for one in own if field.recipe in one[0].names]
        blocks.append([row, *below])
    others = [one for one in chosen if one not in own or recipes.isdisjoint(one[0].names)]
    blocks += [[_measured(layout, *one)] for one in others]
    blocks.sort(key=lambda block: rank_by(layout.ranking, block[0]))
    return ScoreTable(
        kind="community",
        heading=f"{encoder}: community leaderboard{layout.unit_text}",
        encoder=model_name(encoder),
        language=LANGUAGE,
        columns=layout.headings,
        rows=tuple(row for block in blocks for row in block),
    )


def _listed_row(listed: FieldRow, layout: ScoreLayout, coverage: Coverage) -> ScoreRow:
    cells = listed.cells | {AVERAGE: listed.avg}
    doubts: tuple[Mark, ...] = ("doubtful",) if abs(listed.avg - listed.avg_recomputed) > ROUNDED else ()
    scores = {}
    for column in layout.columns:
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
        coverage=(coverage.of_listed(listed),),
    )


def _measured(
    layout: ScoreLayout,
    configuration: Configuration,
    best_of: int,
    row: ScoreRow | None = None,
    metric: str | None = None,
) -> ScoreRow:
    scores = layout_scores(configuration, layout, layout.columns, row.scores if row else {}, metric)
    made = measured_row(configuration, scores, None, best_of)
    return made.model_copy(update={"reproduces": row.name if row else None})
