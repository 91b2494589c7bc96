"""Scores of models side by side, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cse_cli.analysis.leaderboard_view import print_tables
from cse_cli.analysis.papers import ScoreTable
from cse_cli.core.console import stdout_console
from cse_cli.core.tables import as_rich, fits, plain_table
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task

NAME = 12
"""Columns of a terminal that a model's name is folded to at least, as `as_rich` folds labels."""

Columns = Mapping[str, list[str]]
"""Heading → a cell a model."""


def print_scores(scored: Sequence[Scored], tasks: Mapping[str, Task], papers: Sequence[ScoreTable] = ()) -> None:
    """Print what was scored and how, then a table for each evaluator: models × tasks, or × metrics of a single task.

    Where that is too wide for the terminal, tasks are the rows; where long names of models are what is too wide, they
    are numbered.

    Args:
        scored: Models with their scores.
        tasks: As they were scored.
        papers: The same scores beside printed ones.
    """
    grouped = groupby(tasks, key=lambda name: tasks[name].component)
    blocks = [_block(scored, tasks, list(names)) for _, names in grouped]
    names = [one.model for one in scored]
    with stdout_console() as console:
        width = console.width
        shown: list[Table | None] = [_fitting(columns, names, width) for _, columns in blocks]
        numbered = None in shown
        if numbered:
            numbers = [str(number) for number in range(1, len(names) + 1)]
            shown = [_fitting(columns, numbers, width) or _turned(columns, numbers) for _, columns in blocks]
        console.print(_models(scored, numbered, width))
        for (heading, _), table in zip(blocks, shown, strict=True):
            console.print(Text(f"\n{heading}", "bold"))
            console.print(table)
    if papers:
        sys.stdout.write("\n")
        print_tables(papers)


def _models(scored: Sequence[Scored], numbered: bool, width: int) -> RenderableType:
    """Return a row a model: what it is, and the settings it was scored with; sentences where a row is too wide."""
    rows = [[one.model, _pooling(one), str(one.max_length), one.precision, f"{one.seconds:.1f}"] for one in scored]
    headings, align = ["model", "pooling", "max_length", "precision", "seconds"], "plrrr"
    if numbered:
        rows = [[str(number), *row] for number, row in enumerate(rows, 1)]
        headings, align = ["", *headings], f"r{align}"
    table = as_rich(plain_table(headings, rows, align=align))
    longest = max(cell_len(one.model) for one in scored)
    if fits(table, width + longest - min(longest, NAME)):
        return table
    return Text(
        "\n".join(f"{' '.join(row[:-4])}: {row[-4]}, max_length {row[-3]}, {row[-2]}, {row[-1]} s" for row in rows)
    )


def _pooling(one: Scored) -> str:
    """Return the pooling, and the template that it reads."""
    return one.pooling if one.template is None else f"{one.pooling} of {one.template}"


def _block(scored: Sequence[Scored], tasks: Mapping[str, Task], names: list[str]) -> tuple[str, Columns]:
    """Return heading and scores of one component's tasks: the metric of several and their mean, or all of one."""
    first = tasks[names[0]]
    settings = _settings(tasks, names)
    if len(names) > 1:
        metric = first.evaluator.metric
        values = {name: [one.scores[name][metric] for one in scored] for name in names}
        decimals = _decimals([value for each in values.values() for value in each])
        # Of what is printed, as the papers' last columns are and as the leaderboard's.
        means = [sum(round(values[name][row], decimals) for name in names) / len(names) for row in range(len(scored))]
        columns = {name: _texts(each, decimals) for name, each in {**values, "avg": means}.items()}
        return f"{first.component}: {metric}{settings}", columns
    (name,) = names
    values = {metric: [one.scores[name][metric] for one in scored] for metric in first.evaluator.shown_metrics()}
    heading = name if name == first.component else f"{first.component}: {name}"
    return heading + settings, {metric: _texts(each, _decimals(each)) for metric, each in values.items()}


def _settings(tasks: Mapping[str, Task], names: Sequence[str]) -> str:
    """Return in brackets the parameters that were given, each with its tasks where not all have it."""
    given: dict[str, list[str]] = {}
    for name in names:
        for parameter in tasks[name].changed:
            given.setdefault(f"{parameter} = {tasks[name].params[parameter]}", []).append(name)
    texts = [text if len(of) == len(names) else f"{', '.join(of)}: {text}" for text, of in given.items()]
    return f" ({'; '.join(texts)})" if texts else ""


def _decimals(values: Sequence[float]) -> int:
    """Return 2 for shares × 100 and their like, 3 for small numbers."""
    return 2 if any(abs(value) >= 10 for value in values) else 3


def _texts(values: Sequence[float], decimals: int) -> list[str]:
    return [f"{value:.{decimals}f}" for value in values]


def _fitting(columns: Columns, names: Sequence[str], width: int) -> Table | None:
    """Return models as rows, or else as columns; None where neither fits."""
    rows = [[name, *(of[row] for of in columns.values())] for row, name in enumerate(names)]
    models_as_rows = as_rich(plain_table(["", *columns], rows, align="p" + "r" * len(columns)))
    return next((table for table in (models_as_rows, _turned(columns, names)) if fits(table, width)), None)


def _turned(columns: Columns, names: Sequence[str]) -> Table:
    rows = [[column, *cells] for column, cells in columns.items()]
    return as_rich(plain_table(["", *names], rows, align="p" + "r" * len(names)))
