"""The cells of a study: which recipe, with which settings, fills which row and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cse_cli.recipe.load import LoadedRecipe, WrittenRecipe, changed, load, read
from cse_cli.recipe.merge import STUDY
from cse_cli.recipe.problems import Problem, Problems, RecipeError
from cse_cli.recipe.schema import Recipe
from cse_cli.study.checks import check_named
from cse_cli.study.drafts import Draft, drafts
from cse_cli.study.load import origins_of
from cse_cli.study.schema import Column, Study
from registry.errors import CseError


@dataclass(frozen=True)
class Cell:
    """One recipe with its settings, and where its numbers stand.

    Args:
        row: Name of the printed row, or the row's label in a free study.
        columns: Headings of the columns its runs score; empty for all of the table.
        recipe: Name or path.
        overrides: As `--set` takes them.
        unset: As `--unset` takes them.
        hash: `Recipe.hash()`: how its finished runs are found.
    """

    row: str
    columns: tuple[str, ...]
    recipe: str
    overrides: tuple[str, ...]
    unset: tuple[str, ...]
    hash: str

    @property
    def label(self) -> str:
        """How messages name it."""
        return " · ".join([self.row, ", ".join(self.columns)] if self.columns else [self.row])

    def load(self, seed: int) -> LoadedRecipe:
        """Return its recipe with a seed."""
        return load(self.recipe, [*self.overrides, f"train.seed={seed}"], self.unset)


def tag(study: Study, cell: Cell) -> str:
    """Return what the tracking store calls a cell: study, row, and columns joined by "|"."""
    return f"{study.name}/{cell.row}/{'|'.join(cell.columns)}"


def cells(study: Study, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of a study, row by row, every recipe loaded and so validated.

    Args:
        study: As it was read.
        overrides: Laid over every cell, as `--set` takes them.
        unset: Taken out of every cell.

    Raises:
        RecipeError: Recipes that are not valid with their settings, each told at its place in the study.
    """
    found: list[Cell] = []
    recipes: list[tuple[Column | None, Recipe]] = []
    problems, outside = Problems(), list[Problem]()
    files: dict[str, WrittenRecipe] = {}
    for draft in drafts(study):
        made = _cell(draft, overrides, unset)
        try:
            files[made.recipe] = files.get(made.recipe) or read(made.recipe)
            recipe = changed(files[made.recipe], made.overrides, made.unset).recipe
        except CseError as error:
            outside += _place(error, draft, problems)
            continue
        recipes.append((draft.column, recipe))
        found.append(replace(made, hash=recipe.hash()))
    check_named(study, recipes, problems)
    if problems.found or outside:
        inside = origins_of(study.path).error(problems.found, STUDY).problems
        raise RecipeError([*dict.fromkeys(outside), *inside], STUDY)
    return found


def _cell(draft: Draft, overrides: Sequence[str], unset: Sequence[str]) -> Cell:
    return Cell(
        row=draft.row,
        columns=draft.columns,
        recipe=draft.recipe,
        overrides=(*draft.set, *overrides),
        unset=tuple(dict.fromkeys([*draft.unset, *unset])),
        hash="",
    )


def _place(error: CseError, draft: Draft, problems: Problems) -> list[Problem]:
    """Note a recipe's problems where the study causes them; return those that the command line causes."""
    if not isinstance(error, RecipeError):
        problems.add(draft.recipe_keys, error.message)
        return []
    outside = []
    for problem in error.problems:
        if problem.where in draft.labels:
            path = problem.where.partition(" ")[2]
            named = "" if problem.keys in ("", path) else f"{problem.keys}: "
            problems.add(draft.labels[problem.where], f"{path}: {named}{problem.message}")
        elif problem.where.startswith("--"):
            outside.append(problem)
        else:
            problems.add(draft.keys, f"recipe '{draft.recipe}' with these settings: {problem}", at_key=True)
    return outside
