"""Finished results beside the papers' printed rows: pure data, no store and no rendering."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.recipe.find import name_of
from cse_cli.recipe.schema import Recipe
from cse_cli.results import STS_TASKS, Result, Scores
from cse_cli.spread import Score, alone, beside_one_run, beside_untrained
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE, Column, PaperTables, Table

SCHEMA_VERSION = 1
Standing = Literal["current", "changed", "other_model", "missing"]
Judge = Callable[[Result], Standing]


class Row(BaseModel):
    """One line of the leaderboard.

    Args:
        source: A printed row, our seeds of one recipe, or the encoder of those before training.
        name: The printed row, or the recipe's title.
        paper: Key of the paper whose table it stands in; None for what no paper's row can be compared with.
        table: Table of that paper.
        answers: The printed row that our runs answer.
        recipe: Name of the recipe.
        seeds: Every seed counted, once each.
        columns: Headings of the table the line belongs to, in order.
        scores: Heading → cell, where there is one.
        notes: What a reader must know before comparing.
    """

    model_config = ConfigDict(frozen=True)

    source: Literal["paper", "ours", "untrained"]
    name: str
    paper: str | None = None
    table: str | None = None
    answers: str | None = None
    recipe: str | None = None
    recipe_hash: str | None = None
    model: str | None = None
    language: str | None = None
    seeds: tuple[int, ...] = ()
    columns: tuple[str, ...]
    scores: dict[str, Score]
    notes: tuple[str, ...] = ()


def rows(
    results: Iterable[Result],
    standing: Judge,
    paper: str | None = None,
    table: str | None = None,
) -> list[Row]:
    """Return the lines of the leaderboard, a paper's row first, ours below it, what compares with no paper last.

    Args:
        results: Finished runs.
        standing: Result → how the experiment it comes from relates to the recipe's file today.
        paper: Only this paper's tables.
        table: Only the table of this identifier; it is shown even where no run answers it.
    """
    groups = _grouped(results, standing)
    lines: list[Row] = []
    for key in papers.names() if paper is None else [paper]:
        tables = papers.load(key)
        for identifier in tables.tables:
            if table in (None, identifier):
                lines += _table_rows(tables, identifier, groups, standing, always=table is not None)
    if paper is None and table is None:
        for group in groups:
            if group[0].paper is None:
                lines += _other_rows(group, standing)
    return lines


def recipe_name(asked: str) -> str:
    """Return the bare name of a recipe that was asked for by name or by path."""
    return name_of(Path(asked)) if asked.endswith(".toml") else asked


def _grouped(results: Iterable[Result], standing: Judge) -> list[list[Result]]:
    """Return the runs of the same experiment together, one a seed: the one that finished last.

    A run whose model is not its recipe's answers no printed row, whatever its recipe says.
    """
    found: dict[tuple[str, str], dict[int, Result]] = defaultdict(dict)
    for result in sorted(results, key=lambda r: r.finished):
        if result.paper is not None and standing(result) == "other_model":
            result = result.model_copy(update={"paper": None})
        paper_row = "" if result.paper is None else result.paper.model_dump_json()
        found[result.recipe_hash, paper_row][result.seed] = result
    return [[seeds[seed] for seed in sorted(seeds)] for seeds in found.values()]


def _table_rows(
    tables: PaperTables,
    identifier: str,
    groups: Sequence[list[Result]],
    standing: Judge,
    always: bool,
) -> list[Row]:
    table = tables.tables[identifier]
    lines: list[Row] = []
    answered = False
    for name, row in table.rows.items():
        printed = {
            column.name: Score(mean=value)
            for column, value in zip(table.columns, row.numbers, strict=True)
            if value is not None
        }
        lines.append(
            Row(
                source="paper",
                name=name,
                paper=tables.key,
                table=identifier,
                recipe=row.recipe,
                model=row.encoder or None,
                language=row.language or table.language,
                columns=tuple(column.name for column in table.columns),
                scores=printed,
                notes=tuple(flag.note for flag in table.doubts(name)),
            )
        )
        for group in groups:
            if _answers(group[0], tables.key, identifier, name, row.recipe):
                lines.append(_our_row(group, standing, table, identifier, name))
                answered = True
    return lines if answered or always else []


def _answers(result: Result, key: str, table: str, row: str, recipe: str | None) -> bool:
    """Tell whether a run stands beside a printed row: its own, or another one of the paper its recipe answers too."""
    if result.paper is None or result.paper.key != key:
        return False
    own = (result.paper.table, result.paper.row) == (table, row)
    return own or (recipe is not None and recipe == recipe_name(result.recipe))


def _our_row(group: list[Result], standing: Judge, table: Table, identifier: str, name: str) -> Row:
    printed = table.values(name)
    unmarked = standing(group[0]) == "changed" or any(result.test_selected for result in group)
    scores: dict[str, Score] = {}
    for column in table.columns:
        values = [_value(result, column, table) for result in group]
        if all(value is not None for value in values):
            score = beside_one_run([v for v in values if v is not None], printed[column.name])
            scores[column.name] = score.model_copy(update={"significant": score.significant and not unmarked})
    return _row(group, standing, scores).model_copy(
        update={
            "paper": group[0].paper and group[0].paper.key,
            "table": identifier,
            "answers": name,
            "columns": tuple(column.name for column in table.columns),
        }
    )


def _value(result: Result, column: Column, table: Table) -> float | None:
    if column.evaluator == AVERAGE:
        others = [c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)]
        return _average(result.scores, [name for name in others if name is not None] or STS_TASKS, table.score)
    return result.scores.get(column.evaluator or "", {}).get(table.score)


def _averages(of_seeds: Sequence[Scores]) -> list[float]:
    """Return the average over the seven English sets of every seed, or nothing where one seed lacks a set."""
    averages = [_average(scores, STS_TASKS, "spearman") for scores in of_seeds]
    known = [average for average in averages if average is not None]
    return known if len(known) == len(averages) else []


def _average(scores: Scores, evaluators: Sequence[str], metric: str) -> float | None:
    """Return the papers' average: of scores rounded to two decimals; None where one is missing."""
    values = [scores.get(name, {}).get(metric) for name in evaluators]
    known = [round(value, 2) for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _row(group: list[Result], standing: Judge, scores: Mapping[str, Score]) -> Row:
    latest = max(group, key=lambda result: result.finished)
    recipe = recipe_name(latest.recipe)
    notes = []
    if len(group) == 1:
        notes.append("one seed: no spread known")
    state = standing(latest)
    if state in ("changed", "other_model"):
        notes.append("stale: the recipe's file says something else today, or --set changed it")
    elif state == "missing":
        notes.append("no recipe of this name is found from here: not compared with its file")
    if any(result.test_selected for result in group):
        notes.append("state chosen on a test split: optimistic")
    return Row(
        source="ours",
        name=latest.title,
        recipe=recipe,
        recipe_hash=latest.recipe_hash,
        model=latest.model,
        language=latest.language,
        seeds=tuple(result.seed for result in group),
        columns=tuple(scores),
        scores=dict(scores),
        notes=tuple(notes),
    )


def _other_rows(group: list[Result], standing: Judge) -> list[Row]:
    """Return the untrained encoder and our seeds below it: they stand beside no printed row."""
    scores: dict[str, Score] = {}
    untrained: dict[str, Score] = {}
    for evaluator, metrics in group[0].scores.items():
        metric = next(iter(metrics))  # evaluators report the metric they are known by first
        values = _all(metric, [result.scores.get(evaluator, {}) for result in group])
        before = _all(metric, [result.untrained.get(evaluator, {}) for result in group])
        if values and before:
            scores[evaluator] = beside_untrained(values, before)
            untrained[evaluator] = alone(before)
        elif values:
            scores[evaluator] = alone(values)
    if averages := _averages([result.scores for result in group]):
        before = _averages([result.untrained for result in group])
        scores[AVERAGE] = beside_untrained(averages, before) if before else alone(averages)
        if before:
            untrained[AVERAGE] = alone(before)
    trained = _row(group, standing, scores)
    if not untrained:
        return [trained]
    start = {"source": "untrained", "name": f"{trained.name}, before training", "scores": untrained, "notes": ()}
    return [trained.model_copy(update=start), trained]


def _all(metric: str, metrics: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the metric of every seed, or nothing where one seed lacks it."""
    return [values[metric] for values in metrics] if all(metric in values for values in metrics) else []


def standing(result: Result) -> Standing:
    """Tell whether a recipe's file still means the experiment that a result comes from."""
    try:
        recipe = _today(result.recipe)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if recipe.hash() == result.recipe_hash:
        return "current"
    return "changed" if result.model in _models(recipe) else "other_model"


@cache
def _today(name: str) -> Recipe:
    from cse_cli.recipe.load import load  # needs every component, so torch: only where there are results

    return load(name).recipe


def _models(recipe: Recipe) -> set[str]:
    return {str(part.params.get("model", "")) for part in recipe.encoders.values()}


def check_names(paper: str | None, table: str | None) -> None:
    """Refuse a paper or table that does not exist.

    Raises:
        UnknownNameError: It does not; the message suggests the nearest.
    """
    known = [t for key in ([paper] if paper else papers.names()) for t in papers.load(key).tables]
    if table is not None and table not in known:
        raise UnknownNameError(f"unknown table '{table}'.{suggestion(table, known)}", f"known: {', '.join(known)}")
