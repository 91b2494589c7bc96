"""The cells of a study: which recipe, with which settings, fills which row and columns, and the scores of its runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.errors import EnoughProblems, Keys, Problem, Problems, RecipeError
from cse_cli.recipe.load import STUDY, LoadedRecipe, WrittenRecipe, changed, load, read
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import Change, Column, Row, Study, Value, check_named, origins_of
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, Table


@dataclass(frozen=True)
class Cell:
    """One recipe with its settings, and the row and columns that its numbers fill.

    Args:
        row: Name of the printed row, or the row's label in a free study.
        columns: Headings of the columns its runs score; empty for all of the table.
        recipe: Name or path.
        overrides: As `--set` takes them.
        unset: As `--unset` takes them.
        hash: `Recipe.hash()`: how its finished runs are found.
        resolved: The recipe with its settings; None before it was loaded.
    """

    row: str
    columns: tuple[str, ...]
    recipe: str
    overrides: tuple[str, ...]
    unset: tuple[str, ...]
    hash: str
    resolved: Recipe | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """How messages name it."""
        return " · ".join([self.row, ", ".join(self.columns)] if self.columns else [self.row])

    def load(self, seed: int) -> LoadedRecipe:
        """Return its recipe with a seed."""
        return load(self.recipe, [*self.overrides, f"train.seed={seed}"], self.unset)


def cell_tag(study: Study, cell: Cell) -> str:
    """Return what the tracking store calls a cell: study, row, and columns joined by "|"."""
    return f"{study.name}/{cell.row}/{'|'.join(cell.columns)}"


def cells(study: Study, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of a study, row by row, every recipe loaded and so validated.

    Args:
        study: As it was read.
        overrides: Laid over every cell, as `--set` takes them.
        unset: Taken out of every cell.

    Raises:
        RecipeError: Recipes that are not valid with their settings, each with its place in the study.
    """
    found: list[Cell] = []
    recipes: list[tuple[Column | None, Recipe]] = []
    problems, outside = Problems(), list[Problem]()
    files: dict[str, WrittenRecipe] = {}
    with suppress(EnoughProblems):
        for spec in _specs(study):
            cell = spec.cell
            settings = (*cell.overrides, *overrides), tuple(dict.fromkeys([*cell.unset, *unset]))
            try:
                files[cell.recipe] = files.get(cell.recipe) or read(cell.recipe)
                recipe = changed(files[cell.recipe], *settings).recipe
            except CseError as error:
                outside += _locate(error, spec, problems)
                continue
            recipes.append((spec.column, recipe))
            found.append(replace(cell, overrides=settings[0], unset=settings[1], hash=recipe.hash(), resolved=recipe))
        check_named(study, recipes, problems)
    if problems.found or outside:
        inside = origins_of(study.path).error(problems.found, STUDY).problems
        raise RecipeError([*dict.fromkeys(outside), *inside], STUDY)
    return found


@dataclass(frozen=True)
class _Spec:
    """A cell before its recipe is loaded, and where the study writes it.

    Args:
        cell: With its settings; its hash is empty.
        column: Its columns, where a study has any.
        keys: Of its row.
        recipe_keys: Of the name of its recipe.
        labels: How messages of the recipe name a setting → where the study writes it.
    """

    cell: Cell
    column: Column | None
    keys: Keys
    recipe_keys: Keys
    labels: dict[str, Keys]


def _locate(error: CseError, spec: _Spec, problems: Problems) -> list[Problem]:
    """Add a recipe's problems where the study causes them; return those that the command line causes."""
    if not isinstance(error, RecipeError):
        problems.add(spec.recipe_keys, error.message)
        return []
    outside = []
    for problem in error.problems:
        if problem.where in spec.labels:
            path = problem.where.partition(" ")[2]
            named = "" if problem.keys in ("", path) else f"{problem.keys}: "
            problems.add(spec.labels[problem.where], f"{path}: {named}{problem.message}")
        elif problem.where.startswith("--"):
            outside.append(problem)
        else:
            problems.add(spec.keys, f"recipe '{spec.cell.recipe}' with these settings: {problem}", at_key=True)
    return outside


@dataclass(frozen=True)
class _Layer:
    """Settings, and their place in the study's file."""

    keys: Keys
    change: Change


def _specs(study: Study) -> Iterator[_Spec]:
    """Yield the cells row by row."""
    base = _Layer((STUDY,), study)
    for row_layer, label, labels in _rows(study):
        for number, column in enumerate(study.columns or (None,)):
            layers = [base, row_layer]
            if column is not None:
                layers.append(_Layer((STUDY, "columns", number), column))
            yield _joined(study, label, layers, labels, column)


def _rows(study: Study) -> Iterator[tuple[_Layer, str, dict[str, Keys]]]:
    """Yield settings and label of each row; a grid's combinations are rows too, with the places of their paths."""
    for number, row in enumerate(study.rows):
        yield _Layer((STUDY, "rows", number), row), row.row, {}
    if study.grid:
        places: dict[str, Keys] = {f"--set {path}": (STUDY, "grid", path) for path in study.grid}
        for values in itertools.product(*study.grid.values()):
            pairs = list(zip(study.grid, values, strict=True))
            label = ", ".join(f"{path}={value if isinstance(value, str) else _toml(value)}" for path, value in pairs)
            change = Row(row=label, set=tuple(f"{path}={_toml(value)}" for path, value in pairs))
            yield _Layer((STUDY, "grid"), change), label, places


def _joined(study: Study, row: str, layers: list[_Layer], labels: dict[str, Keys], column: Column | None) -> _Spec:
    """Join the study's settings, the row's and the column's; the column's recipe goes before the row's."""
    named = next((layer for layer in reversed(layers) if layer.change.recipe), layers[0])
    places: dict[str, Keys] = {}
    for layer in layers:
        for number, text in enumerate(layer.change.set):
            places[f"--set {text.partition('=')[0].strip()}"] = (*layer.keys, "set", number)
        for number, text in enumerate(layer.change.unset):
            places[f"--unset {text}"] = (*layer.keys, "unset", number)
    cell = Cell(
        row=row,
        columns=() if column is None else column.names,
        recipe=_beside(named.change.recipe or "", study.path),
        overrides=tuple(text for layer in layers for text in layer.change.set),
        unset=tuple(dict.fromkeys(text for layer in layers for text in layer.change.unset)),
        hash="",
    )
    return _Spec(cell, column, layers[1].keys, (*named.keys, "recipe"), {**places, **labels})


def _beside(recipe: str, study: Path) -> str:
    """Return a recipe as `cse run` takes it; a path counts from the study's folder first."""
    path = study.parent / recipe
    return str(path) if recipe.endswith(".toml") and path.is_file() else recipe


def _toml(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


Values = dict[str, dict[str, list[float]]]
"""Row → heading → score of every seed."""


def paper_table(study: Study) -> Table | None:
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
    table = paper_table(study)
    found: Values = {cell.row: {} for cell in cells}
    for cell in cells:
        runs = results.get(cell.hash, ())
        for heading, (score, average_of) in _scored(study, cell, table, runs).items():
            numbers = [_read(result, score, average_of) for result in runs]
            found[cell.row][heading] = [number for number in numbers if number is not None]
    return found


def headings(study: Study, found: Values) -> list[str]:
    """Return the columns in the paper's order, else as the study names them, else as they come."""
    table = paper_table(study)
    printed = [column.name for column in table.columns] if table else []
    named = [name for column in study.columns for name in column.names]
    known = dict.fromkeys(heading for row in found.values() for heading in row)
    return [name for name in dict.fromkeys([*printed, *named, *known]) if name in known]


Score = tuple[str, Sequence[str]]
"""An "evaluator.metric" or "avg", and the evaluators that an average is over."""


def _scored(study: Study, cell: Cell, table: Table | None, runs: Sequence[Result]) -> dict[str, Score]:
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
        return paper_average(result.scores, average_of, "spearman")
    evaluator, _, metric = score.partition(".")
    return result.scores.get(evaluator, {}).get(metric)
