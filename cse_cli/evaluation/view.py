"""Scores of models side by side, on stdout."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import Task

WIDE = 10_000
"""Columns of what is no terminal: nothing is folded there."""
NAME = 10
"""Columns that a model's name is folded to at least."""


@dataclass(frozen=True)
class _Block:
    """The scores of one component.

    Args:
        columns: Name → a cell a model.
    """

    heading: str
    columns: dict[str, list[str]]


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on stderr, while it lasts, what one is told; nothing where that is no terminal."""
    with Console(stderr=True, highlight=False).status("opening models") as status:
        yield lambda doing: status.update(escape(doing))


def print_scores(scored: Sequence[Scored], tasks: Mapping[str, Task]) -> None:
    """Print what was scored and how, then a table for each evaluator: models × tasks, or × metrics of a single task.

    Where that is too wide for the terminal, tasks are the rows; where long names of models are what is too wide, they
    are numbered.
    """
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else WIDE
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    grouped = groupby(tasks, key=lambda name: tasks[name].component)
    blocks = [_block(scored, tasks, list(names)) for _, names in grouped]
    names = [one.model for one in scored]
    shown = [_fitting(block, names, width) for block in blocks]
    numbered = None in shown
    if numbered:
        numbers = [str(number) for number in range(1, len(names) + 1)]
        shown = [_fitting(block, numbers, width) or _turned(block, numbers) for block in blocks]
    console.print(_models(scored, numbered, width))
    for block, table in zip(blocks, shown, strict=True):
        console.print(f"\n[bold]{escape(block.heading)}[/bold]")
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n")))


def _models(scored: Sequence[Scored], numbered: bool, width: int) -> Table | str:
    """Return a row a model: what it is, and the settings it was scored with; sentences where a row is too wide."""
    table = Table(box=None, pad_edge=False)
    if numbered:
        table.add_column("", justify="right", no_wrap=True)
    table.add_column("model", overflow="fold")
    table.add_column("pooling", no_wrap=True)
    for heading in ("max_length", "precision", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    lines = []
    for number, one in enumerate(scored, 1):
        cells = (one.model, one.pooling, str(one.max_length), one.precision, f"{one.seconds:.1f}")
        row = [*([str(number)] if numbered else []), *map(escape, cells)]
        table.add_row(*row)
        *start, pooling, length, precision, seconds = row
        lines.append(f"{' '.join(start)}: {pooling}, max_length {length}, {precision}, {seconds} s")
    longest = max(cell_len(one.model) for one in scored)
    least = Console(width=WIDE).measure(table).maximum - longest + min(longest, NAME)
    return table if least <= width else "\n".join(lines)


def _block(scored: Sequence[Scored], tasks: Mapping[str, Task], names: list[str]) -> _Block:
    """Return the scores of one component's tasks: the metric of several and their mean, or all metrics of one."""
    first = tasks[names[0]]
    settings = _settings(tasks, names)
    if len(names) > 1:
        metric = first.evaluator.metric
        values = {name: [one.scores[name][metric] for one in scored] for name in names}
        decimals = _decimals([value for each in values.values() for value in each])
        # Of what is printed, as the papers' last columns are and as the leaderboard's.
        means = [sum(round(values[name][row], decimals) for name in names) / len(names) for row in range(len(scored))]
        columns = {name: _texts(each, decimals) for name, each in {**values, "avg": means}.items()}
        return _Block(f"{first.component}: {metric}{settings}", columns)
    (name,) = names
    values = {metric: [one.scores[name][metric] for one in scored] for metric in first.evaluator.shown_metrics()}
    heading = name if name == first.component else f"{first.component}: {name}"
    return _Block(heading + settings, {metric: _texts(each, _decimals(each)) for metric, each in values.items()})


def _settings(tasks: Mapping[str, Task], names: Sequence[str]) -> str:
    """Return in brackets the parameters that were given, each with its tasks where not all have it."""
    given: dict[str, list[str]] = {}
    for name in names:
        for parameter in tasks[name].changed:
            given.setdefault(f"{parameter} = {tasks[name].params[parameter]}", []).append(name)
    told = [text if len(of) == len(names) else f"{', '.join(of)}: {text}" for text, of in given.items()]
    return f" ({'; '.join(told)})" if told else ""


def _decimals(values: Sequence[float]) -> int:
    """Return 2 for shares × 100 and their like, 3 for small numbers."""
    return 2 if any(abs(value) >= 10 for value in values) else 3


def _texts(values: Sequence[float], decimals: int) -> list[str]:
    return [f"{value:.{decimals}f}" for value in values]


def _fitting(block: _Block, names: Sequence[str], width: int) -> Table | None:
    """Return models as rows, or else as columns; None where neither fits."""
    for table in (_plain(block, names), _turned(block, names)):
        if Console(width=WIDE).measure(table).maximum <= width:
            return table
    return None


def _plain(block: _Block, names: Sequence[str]) -> Table:
    rows = [[name, *(of[row] for of in block.columns.values())] for row, name in enumerate(names)]
    return _table(["", *block.columns], rows)


def _turned(block: _Block, names: Sequence[str]) -> Table:
    return _table(["", *names], [[column, *cells] for column, cells in block.columns.items()])


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        if place:
            table.add_column(escape(heading), justify="right", no_wrap=True)
        else:
            table.add_column(escape(heading), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def write_json(scored: Sequence[Scored]) -> None:
    """Write one JSON document with every metric and setting."""
    document = {"schema_version": 1, "models": [asdict(one) for one in scored]}
    sys.stdout.write(json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """Return the same with null for each number that JSON has no way to write."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
