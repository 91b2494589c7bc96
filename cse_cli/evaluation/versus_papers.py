"""Comparison of scores with the rows that papers report for the same encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_cli.analysis.papers import ScoreLayout, layouts, merge_equal, model_name, reported_for, reported_rows
from cse_cli.analysis.score_table import ScoreRow, ScoreTable, measure
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task
from cse_cli.runs.record import model_of_run
from registry.encoders.export import SETTINGS
from registry.papers import AVERAGE
from registry.resources.models import locate


def compare_with_papers(scored: Sequence[Scored], tasks: Mapping[str, Task]) -> list[ScoreTable]:
    """Return a table for each encoder and each kind of reported scores whose columns are all among the tasks.

    Args:
        scored: Models with their scores.
        tasks: Scored tasks. Tasks with changed parameters are not comparable with papers.
    """
    plain = {name for name, task in tasks.items() if not task.changed}
    by_encoder: dict[str, list[Scored]] = {}
    for one in scored:
        by_encoder.setdefault(encoder_of(one.model), []).append(one)
    languages = {(row.model, row.language): None for row in reported_rows() if row.model and row.language}
    return [
        _table(encoder, language, layout, by_encoder[encoder])
        for encoder, language in languages
        if encoder in by_encoder and language is not None
        for layout in layouts(language)
        if _covers(by_encoder[encoder][0], plain, layout) and reported_for(encoder, language, layout)
    ]


def encoder_of(model: str) -> str:
    """Return the papers' name of an encoder, or of the encoder that a model was trained from."""
    settings = locate(model_of_run(model) or model) / SETTINGS
    origin = json.loads(settings.read_text(encoding="utf-8")).get("origin") if settings.is_file() else None
    name = str(origin or model)
    return model_name(Path(name).name if Path(name).is_dir() else name)


def _covers(one: Scored, plain: set[str], layout: ScoreLayout) -> bool:
    return all(
        column.evaluator in plain and (column.metric is None or column.metric in one.scores[column.evaluator])
        for column in layout.columns
        if column.evaluator != AVERAGE
    )


def _table(encoder: str, language: str, layout: ScoreLayout, models: Sequence[Scored]) -> ScoreTable:
    rows = [*merge_equal(reported_for(encoder, language, layout)), *(_row(one, language, layout) for one in models)]
    ranked = sorted(rows, key=lambda row: -row.scores[layout.ranking].mean if layout.ranking in row.scores else 0.0)
    return ScoreTable(
        kind="encoder",
        heading=f"reported results of {encoder} ({language}){f' [{layout.unit}]' if layout.unit else ''}",
        encoder=encoder,
        language=language,
        columns=tuple(column.heading for column in layout.columns),
        rows=tuple(ranked),
    )


def _row(one: Scored, language: str, layout: ScoreLayout) -> ScoreRow:
    values = {
        column.heading: one.scores[column.evaluator][column.metric or next(iter(one.scores[column.evaluator]))]
        for column in layout.columns
        if column.evaluator != AVERAGE
    }
    for column in layout.columns:
        if column.evaluator == AVERAGE:
            values[column.heading] = sum(round(value, 2) for value in values.values()) / len(values)
    scores = {column.heading: measure([values[column.heading]]) for column in layout.columns}
    return ScoreRow(
        source="measured", name=one.model, recipe=one.model, model=one.model, language=language, scores=scores
    )
