"""What each cell of a study is about, read off its finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cse_cli.results import STS_TASKS, Result, average
from cse_cli.study.cells import Cell
from cse_cli.study.schema import Study
from registry import papers
from registry.papers import AVERAGE, Table

Values = dict[str, dict[str, list[float]]]
"""Row → heading → score of every seed."""


def table_of(study: Study) -> Table | None:
    """Return the paper's table that a study answers; None for a figure, and for a free study."""
    if study.answers is None:
        return None
    key, identifier = study.answers
    return papers.load(key).tables.get(identifier)


def values(study: Study, cells: Sequence[Cell], results: Mapping[str, Sequence[Result]]) -> Values:
    """Return the scores of every cell.

    Args:
        study: As it was read.
        cells: Its cells.
        results: Recipe hash → finished runs, one a seed.
    """
    table = table_of(study)
    found: Values = {cell.row: {} for cell in cells}
    for cell in cells:
        runs = results.get(cell.hash, ())
        for heading, (score, average_of) in _asked(study, cell, table, runs).items():
            numbers = [_read(result, score, average_of) for result in runs]
            found[cell.row][heading] = [number for number in numbers if number is not None]
    return found


def headings(study: Study, found: Values) -> list[str]:
    """Return the columns in the paper's order, else as the study names them, else as they come."""
    table = table_of(study)
    printed = [column.name for column in table.columns] if table else []
    named = [name for column in study.columns for name in column.names]
    known = dict.fromkeys(heading for row in found.values() for heading in row)
    return [name for name in dict.fromkeys([*printed, *named, *known]) if name in known]


Asked = tuple[str, Sequence[str]]
"""An "evaluator.metric" or "avg", and the evaluators that an average is over."""


def _asked(study: Study, cell: Cell, table: Table | None, runs: Sequence[Result]) -> dict[str, Asked]:
    """Return heading → score: the column's own, else the paper's, else the study's, else what chose the state."""
    own = {name: column.score for column in study.columns for name in column.names}
    printed = {} if table is None else _printed(table)
    fallback = study.score or (runs[0].select if runs else None)
    scored = tuple(name for name, score in printed.items() if score is not None)  # not: "gain over SimCSE"
    names = cell.columns or scored or ((fallback,) if fallback else ())
    scores = {name: own.get(name) or printed.get(name) or fallback for name in names}
    return {name: (score, _averaged(table)) for name, score in scores.items() if score is not None}


def _printed(table: Table) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for column in table.columns:
        plain = column.evaluator in (None, AVERAGE)
        found[column.name] = column.evaluator if plain else f"{column.evaluator}.{table.score_of(column)}"
    return found


def _averaged(table: Table | None) -> Sequence[str]:
    others = [c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)] if table else []
    return [name for name in others if name is not None] or STS_TASKS


def _read(result: Result, score: str, average_of: Sequence[str]) -> float | None:
    if score == AVERAGE:
        return average(result.scores, average_of, "spearman")
    evaluator, _, metric = score.partition(".")
    return result.scores.get(evaluator, {}).get(metric)
