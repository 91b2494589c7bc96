"""Scores and axes that a study names, held against the recipes of its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from cse_cli.recipe.merge import STUDY
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.tune_paths import values
from cse_cli.study.schema import Column, Study
from cse_cli.study.settings import setting
from registry.errors import suggestion
from registry.kinds import EVALUATORS
from registry.papers import AVERAGE

ROW = "row"
STEP = "step"
MEASURES = "measures."
Check = Callable[[Recipe], str | None]


def check_named(study: Study, made: Sequence[tuple[Column | None, Recipe]], problems: Problems) -> None:
    """Report scores and axes that recipes know nothing of.

    Columns may score by different recipes: what the study as a whole names must be known to one of them.

    Args:
        study: As it was read.
        made: Column and recipe of each cell.
        problems: Where they are noted.
    """
    recipes = [recipe for _, recipe in made]
    for column, recipe in made:
        if column is not None and column.score is not None:
            keys = (STUDY, "columns", study.columns.index(column), "score")
            _known_to_one(partial(_score_problem, column.score), [recipe], keys, problems)
    if study.score is not None:
        _known_to_one(partial(_score_problem, study.score), recipes, (STUDY, "score"), problems)
    if study.figure is not None:
        _known_to_one(partial(_axis_problem, study.figure.x), recipes, (STUDY, "figure", "x"), problems)
        if study.figure.lines is not None:
            _known_to_one(partial(_path_problem, study.figure.lines), recipes, (STUDY, "figure", "lines"), problems)
        if study.figure.y is not None:
            _known_to_one(partial(_score_problem, study.figure.y), recipes, (STUDY, "figure", "y"), problems)


def _known_to_one(check: Check, recipes: Sequence[Recipe], keys: Keys, problems: Problems) -> None:
    first: str | None = None
    for recipe in recipes:
        if (problem := check(recipe)) is None:
            return
        first = first or problem
    if first is not None:
        problems.add(keys, first)


def _score_problem(score: str, recipe: Recipe) -> str | None:
    if score == AVERAGE:
        return None
    name, _, metric = score.partition(".")
    part = recipe.evaluators.get(name)
    if part is None:
        return f"the recipe has no evaluator '{name}'.{_near(name, recipe.evaluators)}"
    metrics = EVALUATORS[part.name].cls.metrics
    return None if metric in metrics else f"evaluator '{name}' has no metric '{metric}'.{_near(metric, metrics)}"


def _axis_problem(x: str, recipe: Recipe) -> str | None:
    """Return what is wrong with an x axis; measures are known only after a run."""
    return None if x in (ROW, STEP) or x.startswith(MEASURES) else _path_problem(x, recipe, (ROW, STEP))


def _path_problem(path: str, recipe: Recipe, instead: Sequence[str] = ()) -> str | None:
    known = values(recipe)
    if path in known or setting(recipe, path) is not None:
        return None
    return f"the recipe has no '{path}'.{suggestion(path, [*known, *instead])}"


def _near(name: str, known: Iterable[str]) -> str:
    return suggestion(name, known) or f" Known: {', '.join(known)}."
