"""Scores of existing models beside the rows that papers print of the same encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_cli.analysis.papers import Layout, ScoreRow, ScoreTable, layouts, merge_equal, model_name, printed_beside
from cse_cli.analysis.papers import printed_rows as all_printed_rows
from cse_cli.core.stats import score_alone
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task
from cse_cli.runs.model import model_of_run
from registry.encoders.export import SETTINGS
from registry.models import locate
from registry.papers import AVERAGE


def beside_papers(scored: Sequence[Scored], tasks: Mapping[str, Task]) -> list[ScoreTable]:
    """Return a table for each encoder and kind of scores that papers print, where the tasks are all of its columns.

    Args:
        scored: Models with their scores.
        tasks: As they were scored; one with a parameter of its own is not what papers print.
    """
    plain = {name for name, task in tasks.items() if not task.changed}
    by_encoder: dict[str, list[Scored]] = {}
    for one in scored:
        by_encoder.setdefault(encoder_of(one.model), []).append(one)
    languages = {(row.encoder, row.language): None for row in all_printed_rows() if row.encoder and row.language}
    return [
        _table(encoder, language, layout, by_encoder[encoder])
        for encoder, language in languages
        if encoder in by_encoder and language is not None
        for layout in layouts(language)
        if _covers(by_encoder[encoder][0], plain, layout) and printed_beside(encoder, language, layout)
    ]


def encoder_of(model: str) -> str:
    """Return how the papers call the encoder that a model is, or that it was trained from."""
    folder = locate(model_of_run(model) or model)
    settings = folder / SETTINGS
    origin = json.loads(settings.read_text(encoding="utf-8")).get("origin") if settings.is_file() else None
    name = str(origin or model)
    return model_name(Path(name).name if Path(name).is_dir() else name)


def _covers(one: Scored, plain: set[str], layout: Layout) -> bool:
    return all(
        column.evaluator in plain and (column.metric is None or column.metric in one.scores[column.evaluator])
        for column in layout.columns
        if column.evaluator != AVERAGE
    )


def _table(encoder: str, language: str, layout: Layout, models: Sequence[Scored]) -> ScoreTable:
    rows = [*merge_equal(printed_beside(encoder, language, layout)), *(_row(one, language, layout) for one in models)]
    ranked = sorted(rows, key=lambda row: -row.scores[layout.ranking].mean if layout.ranking in row.scores else 0.0)
    return ScoreTable(
        kind="encoder",
        heading=f"what papers print of {encoder} ({language}){f' [{layout.unit}]' if layout.unit else ''}",
        encoder=encoder,
        language=language,
        columns=tuple(column.heading for column in layout.columns),
        rows=tuple(ranked),
    )


def _row(one: Scored, language: str, layout: Layout) -> ScoreRow:
    values = {
        column.heading: one.scores[column.evaluator][column.metric or next(iter(one.scores[column.evaluator]))]
        for column in layout.columns
        if column.evaluator != AVERAGE
    }
    for column in layout.columns:
        if column.evaluator == AVERAGE:
            values[column.heading] = sum(round(value, 2) for value in values.values()) / len(values)
    scores = {column.heading: score_alone([values[column.heading]]) for column in layout.columns}
    return ScoreRow(source="ours", name=one.model, recipe=one.model, model=one.model, language=language, scores=scores)
