"""Comparison of scores with the rows that papers report for the same encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_cli.analysis.papers import ScoreLayout, layouts, merge_equal, model_name, reported_for, reported_rows
from cse_cli.analysis.score_table import ScoreRow, ScoreTable, measure
from cse_cli.core.formatting import grouped
from cse_cli.core.results import paper_average
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task
from cse_cli.runs.record import model_of_run
from registry.encoders.export import SETTINGS
from registry.papers import AVERAGE
from registry.resources.models import locate


def compare_with_papers(scored: Sequence[Scored], tasks: Mapping[str, Task]) -> list[ScoreTable]:
    """Return a table for each encoder and each kind of reported scores whose columns are all among the tasks.

    Tasks with changed parameters are not comparable with papers.
    """
    plain = {name for name, task in tasks.items() if not task.changed}
    by_encoder = grouped(scored, lambda one: encoder_of(one.model))
    languages = dict.fromkeys((row.model or "", row.language or "") for row in reported_rows())
    tables = []
    for encoder, language in languages:
        for layout in layouts(language) if language and encoder in by_encoder else ():
            own = [_row(one, language, layout) for one in by_encoder[encoder] if plain.issuperset(layout.evaluators)]
            reported = reported_for(encoder, language, layout)
            if not reported or not own or len(own[0].scores) < len(layout.columns):
                continue
            key = layout.ranking
            rows = sorted(
                [*merge_equal(reported), *own], key=lambda row: -row.scores[key].mean if key in row.scores else 0.0
            )
            table = ScoreTable(
                kind="encoder",
                heading=f"reported results of {encoder} ({language}){layout.unit_text}",
                encoder=encoder,
                language=language,
                columns=tuple(column.heading for column in layout.columns),
                rows=tuple(rows),
            )
            tables.append(table)
    return tables


def encoder_of(model: str) -> str:
    """Return the papers' name of an encoder, or of the encoder that a model was trained from."""
    settings = locate(model_of_run(model) or model) / SETTINGS
    origin = json.loads(settings.read_text(encoding="utf-8")).get("origin") if settings.is_file() else None
    name = str(origin or model)
    return model_name(Path(name).name if Path(name).is_dir() else name)


def _row(one: Scored, language: str, layout: ScoreLayout) -> ScoreRow:
    """Return the row of a model, without the columns that it has no score of."""
    values = {
        column.heading: paper_average(one.scores, layout.evaluators, column.metric or "")
        if column.evaluator == AVERAGE
        else one.scores[column.evaluator].get(column.metric or "")
        for column in layout.columns
    }
    scores = {heading: measure([value]) for heading, value in values.items() if value is not None}
    return ScoreRow(
        source="measured", name=one.model, recipe=one.model, model=one.model, language=language, scores=scores
    )
