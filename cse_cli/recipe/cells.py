"""The cells of a study: the recipe and settings of each row and column, and the scores of its runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.keys import Keys, inline
from cse_cli.recipe.load import STUDY, LoadedRecipe, WrittenRecipe, changed, load, read
from cse_cli.recipe.overrides import Override, parse_overrides
from cse_cli.recipe.problems import Problem, Problems, RecipeError
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import Change, Column, Row, Study, check_names_in_recipes, origins_of
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, Table


@dataclass(frozen=True)
class Cell:
    """A recipe with its settings, and the row and columns that its scores fill. No columns: its runs fill all.

    `hash` is `Recipe.hash()`, which identifies the finished runs.
    """

    row: str
    columns: tuple[str, ...]
    recipe: str
    overrides: tuple[Override, ...]
    unset: tuple[str, ...]
    hash: str
    resolved: Recipe | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name in messages."""
        return " · ".join([self.row, ", ".join(self.columns)] if self.columns else [self.row])

    def load(self, seed: int) -> LoadedRecipe:
        """Return the recipe with its settings and a seed."""
        return load(self.recipe, [*self.overrides, Override.of("train.seed", seed)], self.unset)


def cell_tag(study: Study, cell: Cell) -> str:
    """Return the tag of a cell's runs: study, row, and columns joined by "|"."""
    return f"{study.name}/{cell.row}/{'|'.join(cell.columns)}"


class PlacedRow(NamedTuple):
    """A row of a study, its path, and label of a setting in messages of the recipe → its path, if that is elsewhere."""

    row: Row
    keys: Keys
    labels: Mapping[str, Keys] = {}


def cells(
    study: Study,
    overrides: Sequence[str | Override] = (),
    unset: Sequence[str] = (),
    rows: Iterable[PlacedRow] | None = None,
    omitted: Callable[[Recipe], Sequence[str]] = lambda _: (),
) -> list[Cell]:
    """Return the cells of a study (or only of `rows`) row by row, with validated recipes. Tuned rows are untuned.

    A `RecipeError` has the problems of all recipes, with their places in the study. `omitted` names further keys of two
    parts, such as "evaluators.test", that the cell of a recipe removes.
    """
    found: list[Cell] = []
    recipes: list[tuple[Column | None, Recipe]] = []
    problems, outside = Problems(origins_of(study.path).where), list[Problem]()
    written: dict[str, WrittenRecipe] = {}
    given = parse_overrides(overrides)
    for cell, column, places in _drafts(study, _rows(study) if rows is None else rows):
        name, settings, removed = cell.recipe, (*cell.overrides, *given), _distinct(cell.unset, unset)
        try:
            written[name] = written.get(name) or read(name)
            recipe = whole = changed(written[name], settings, removed).recipe
            if left_out := omitted(whole):
                # A setting that adds such a key is left out, too, because keys are removed before any is set.
                settings = tuple(one for one in settings if ".".join(one.keys[:2]) not in left_out)
                tables = {table: keys for table, keys in written[name].tables.items() if isinstance(keys, Mapping)}
                present = {f"{table}.{key}" for table, keys in tables.items() for key in keys}
                removed = _distinct(removed, [key for key in left_out if key in present])
                recipe = changed(written[name], settings, removed).recipe
        except CseError as error:
            outside += _locate(error, name, places, problems)
            continue
        recipes.append((column, whole))
        found.append(replace(cell, overrides=settings, unset=removed, hash=recipe.hash(), resolved=recipe))
    check_names_in_recipes(study, recipes, problems)
    if outside or problems.found:
        raise RecipeError([*dict.fromkeys(outside), *problems.found], STUDY)
    return found


_ROW, _RECIPE = "row", "recipe"
"""Labels of the places of a cell's row and of the name of its recipe."""


def _locate(error: CseError, recipe: str, places: Mapping[str, Keys], problems: Problems) -> list[Problem]:
    """Add the problems of a recipe at their places in the study, and return those of the command line."""
    if not isinstance(error, RecipeError):
        problems.add(error.code, places[_RECIPE], error.message)
        return []
    outside = []
    for problem in error.problems:
        if problem.where in places:
            path = problem.where.partition(" ")[2]
            message = str(replace(problem, where=path, keys="" if problem.keys == path else problem.keys))
            problems.add(problem.code, places[problem.where], message)
        elif problem.where.startswith("--"):
            outside.append(problem)
        else:
            message = f"recipe '{recipe}' is invalid with these settings: {problem}"
            problems.add(problem.code, places[_ROW], message, at_key=True)
    return outside


def _drafts(study: Study, rows: Iterable[PlacedRow]) -> Iterator[tuple[Cell, Column | None, dict[str, Keys]]]:
    """Yield the cells before their recipes are loaded, their columns, and label → path in the study of each setting.

    The recipe of the last layer of settings that names one is used.
    """
    columns: list[tuple[Keys, Column | None]] = [((), None)]
    if study.columns:
        columns = [((STUDY, "columns", number), column) for number, column in enumerate(study.columns)]
    for (row, keys, others), (column_keys, column) in itertools.product(rows, columns):
        layers: list[tuple[Keys, Change]] = [((STUDY,), study), (keys, row)]
        if column is not None:
            layers.append((column_keys, column))
        recipe_keys, recipe = next(((k, c.recipe) for k, c in reversed(layers) if c.recipe), ((STUDY,), ""))
        beside = study.path.parent / recipe
        cell = Cell(
            row=row.row,
            columns=() if column is None else column.names,
            recipe=str(beside) if recipe.endswith(".toml") and beside.is_file() else recipe,
            overrides=tuple(override for _, change in layers for override in change.set),
            unset=_distinct(*(change.unset for _, change in layers)),
            hash="",
        )
        settings = {label: place for k, change in layers for label, place in _labels(k, change)}
        yield cell, column, {_ROW: keys, _RECIPE: (*recipe_keys, "recipe"), **settings, **others}


def _rows(study: Study) -> Iterator[PlacedRow]:
    """Yield each row. The combinations of a grid are rows, too."""
    yield from (PlacedRow(row, keys) for keys, row in study.placed_rows())
    for combination in itertools.product(*study.grid.values()) if study.grid else ():
        texts = (value if isinstance(value, str) else inline(value) for value in combination)
        label = ", ".join(f"{path}={text}" for path, text in zip(study.grid, texts, strict=True))
        yield PlacedRow(Row(row=label, set=tuple(map(Override.of, study.grid, combination))), (STUDY, "grid"))


def _labels(keys: Keys, change: Change) -> Iterator[tuple[str, Keys]]:
    """Yield the label of each setting in the messages of a recipe, and its path in the study."""
    for number, override in enumerate(change.set):
        place = (override.label.removeprefix("--set "),) if keys[-1] == "grid" else ("set", number)
        yield override.label, (*keys, *place)
    for number, path in enumerate(change.unset):
        yield f"--unset {path}", (*keys, "unset", number)


def _distinct(*several: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain(*several)))


Values = dict[str, dict[str, list[float]]]
"""Row → column → scores of all seeds."""


def paper_table(study: Study) -> Table | None:
    """Return the paper's table that a study reproduces, or None if it reproduces a figure or nothing."""
    if study.answers is None:
        return None
    key, identifier = study.answers
    return papers.load(key).tables.get(identifier)


def values(study: Study, cells: Sequence[Cell], results: Mapping[str, Sequence[Result]]) -> Values:
    """Return the scores of every cell. `results` maps the hash of a recipe to its finished runs, one for each seed."""
    found: Values = {cell.row: {} for cell in cells}
    for cell in cells:
        runs = results.get(cell.hash, ())
        for heading, (score, average_of) in column_scores(study, cell, runs).items():
            name, _, metric = score.partition(".")
            numbers = [run.scores.get(name, {}).get(metric) for run in runs]
            if score == AVERAGE:
                numbers = [paper_average(run.scores, average_of, "spearman") for run in runs]
            found[cell.row][heading] = [number for number in numbers if number is not None]
    return found


def headings(study: Study, known: Iterable[str]) -> list[str]:
    """Return these columns in the order of the paper, then of the study."""
    table = paper_table(study)
    reported = [column.name for column in table.columns] if table else []
    named = [name for column in study.columns for name in column.names]
    found = dict.fromkeys(known)
    return [name for name in dict.fromkeys([*reported, *named, *found]) if name in found]


Score = tuple[str, tuple[str, ...]]
"""An "evaluator.metric" or "avg", and the evaluators of an average."""


def column_scores(study: Study, cell: Cell, runs: Sequence[Result]) -> dict[str, Score]:
    """Return column → score, defined by the column, the study, the paper, or `metric_for_best_model`."""
    table = paper_table(study)
    columns = table.columns if table else ()
    reported: dict[str, str | None] = {}
    for column in columns:
        plain = column.evaluator in (None, AVERAGE)
        reported[column.name] = column.evaluator if plain else f"{column.evaluator}.{table.score_of(column)}"  # type: ignore[union-attr]
    default = study.score or (runs[0].metric_for_best_model if runs else None)
    scored = tuple(name for name, score in reported.items() if score is not None)  # not "gain over SimCSE"
    names = cell.columns or scored or ((default,) if default else ())
    averaged = [column.evaluator for column in columns if column.evaluator not in (None, AVERAGE)]
    average_of = tuple(name for name in averaged if name is not None) or STS_TASKS
    scores = {name: study.score_of(name) or reported.get(name) or default for name in names}
    return {name: (score, average_of) for name, score in scores.items() if score is not None}
