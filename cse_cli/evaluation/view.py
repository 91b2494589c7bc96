"""Tables of scores, next to the rows that papers report for the same encoder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.text import Text

from cse_cli.analysis.papers import ScoreLayout, layouts, merge_equal, model_name, reported_for, reported_rows
from cse_cli.analysis.score_table import ScoreRow, ScoreTable, measure
from cse_cli.analysis.table_view import print_tables
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import grouped
from cse_cli.core.results import WORD_OVERLAP, Scores, paper_average
from cse_cli.core.tables import as_rich_parts, plain_table
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task
from cse_cli.runs.record import model_of_run
from registry.encoders.export import SETTINGS
from registry.papers import AVERAGE
from registry.resources.models import locate

Columns = Mapping[str, list[str]]
"""Heading → cell of each model."""


def print_scores(
    scored: Sequence[Scored],
    tasks: Mapping[str, Task],
    papers: Sequence[ScoreTable] = (),
    overlaps: Scores | None = None,
) -> None:
    """Print the models, then a table for each evaluator: models × tasks, or models × metrics of a single task."""
    settings = []
    for one in scored:
        pooling = one.pooling if one.template is None else f"{one.pooling} of {one.template}"
        pooling += "" if one.width is None else f", {one.width} dimensions"
        settings.append([one.model, pooling, str(one.max_length), one.precision, f"{one.seconds:.1f}"])
    with stdout_console() as console:
        _print_table(console, ["model", "pooling", "max_length", "precision", "seconds"], settings, "pprrr")
        for note in (note for one in scored for note in _notes(one)):
            console.print(Text(note))
        for _, names in groupby(tasks, key=lambda name: tasks[name].component):
            of_component = list(names)
            lines = [(one.model, one.scores) for one in scored]
            if overlaps and all(name in overlaps for name in of_component):
                lines.append((WORD_OVERLAP, overlaps))
            heading, columns = _block([scores for _, scores in lines], tasks, of_component)
            console.print(Text(f"\n{heading}", "bold"))
            rows = [[label, *(of[place] for of in columns.values())] for place, (label, _) in enumerate(lines)]
            _print_table(console, ["", *columns], rows, "p" + "r" * len(columns))
    if papers:
        sys.stdout.write("\n")
        print_tables(papers)


def _print_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> None:
    """Print a table, in several parts if its columns are too many for the terminal."""
    for part in as_rich_parts(plain_table(headings, rows, align=align), console.width):
        console.print(part)


def _notes(one: Scored) -> Iterator[str]:
    """Yield notes about the way to the embeddings of a model."""
    if one.library is not None:
        yield f"{one.model}: opened through sentence-transformers ({one.library})"
    for text in dict.fromkeys(one.prompts.values()):
        names = ", ".join(name for name, prompt in one.prompts.items() if prompt == text)
        yield f"{one.model}: prompt {text!r} ({names})"
    for folder in one.exported:
        yield f"{one.model}: results in the format of {Path(folder).name} in {folder}"


def _block(scored: Sequence[Scores], tasks: Mapping[str, Task], names: list[str]) -> tuple[str, Columns]:
    """Return heading and scores: one metric of several tasks and its mean, or all metrics of one task."""
    first = tasks[names[0]]
    settings = _settings(tasks, names)
    if len(names) > 1:
        metric = first.evaluator.metric
        values = {name: [one[name][metric] for one in scored] for name in names}
        decimals = _decimals([value for each in values.values() for value in each])
        # The mean of rounded values, as in papers and on the leaderboard.
        means = [sum(round(values[name][row], decimals) for name in names) / len(names) for row in range(len(scored))]
        columns = {name: _texts(each, decimals) for name, each in {**values, "avg": means}.items()}
        return f"{first.component}: {metric}{settings}", columns
    (name,) = names
    metrics = {metric: [one[name].get(metric) for one in scored] for metric in first.evaluator.shown_metrics()}
    heading = name if name == first.component else f"{first.component}: {name}"
    return heading + settings, {metric: _texts(each, _decimals(each)) for metric, each in metrics.items()}


def _settings(tasks: Mapping[str, Task], names: Sequence[str]) -> str:
    """Return the changed parameters in brackets, with their tasks if not all tasks have them."""
    given: dict[str, list[str]] = {}
    for name in names:
        for parameter in tasks[name].changed:
            given.setdefault(f"{parameter} = {tasks[name].params[parameter]}", []).append(name)
    texts = [text if len(of) == len(names) else f"{', '.join(of)}: {text}" for text, of in given.items()]
    return f" ({'; '.join(texts)})" if texts else ""


def _decimals(values: Sequence[float | None]) -> int:
    """Return 2 for values such as percentages, 3 for small numbers."""
    return 2 if any(abs(value or 0.0) >= 10 for value in values) else 3


def _texts(values: Sequence[float | None], decimals: int) -> list[str]:
    return ["" if value is None else f"{value:.{decimals}f}" for value in values]


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
                heading=f"reported results of {encoder} ({language}){layout.unit}",
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
