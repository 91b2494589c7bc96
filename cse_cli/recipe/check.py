"""Validation of recipes and studies (`cse check`), and the requirements of several of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cse_cli.core.paths import check_entries
from cse_cli.recipe.cells import cells
from cse_cli.recipe.files import all_recipes, all_studies, find, is_study, name_of
from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from cse_cli.recipe.requirements import NOT_INSTALLED, Requirement, merged_requirements, requirements
from cse_cli.recipe.study import find_study, load_study
from cse_cli.recipe.trials import trials
from registry.errors import CseError


def recipe_files(arguments: Sequence[str]) -> list[Path]:
    """Return the files for paths, directories and names. Without arguments, return all known recipes and studies."""
    if not arguments:
        return [*all_recipes().values(), *all_studies().values()]
    return [path for argument in arguments for path in _files(argument)]


def _files(argument: str) -> Iterator[Path]:
    directory = Path(argument)
    if not argument or not directory.is_dir():  # "" would be the current directory
        yield find_study(argument) or find(argument)
        return
    check_entries(directory, None, "give a directory that contains little except recipes")
    found = sorted(directory.rglob("*.toml"))
    if not found:
        raise CseError(
            f"directory '{argument}' contains no recipe (*.toml)",
            "run `cse check` without arguments to check all known recipes",
            code="data.no_recipe",
        )
    yield from found


def requirements_of(
    names: Sequence[str | Path], overrides: Sequence[str] = (), unset: Sequence[str] = ()
) -> list[Requirement]:
    """Return the requirements of recipes and of the cells of studies, without duplicates.

    `names` are paths, directories and names. `overrides` are values of `--set` for each recipe or cell, `unset` those
    of `--unset`.
    """
    recipes = []
    for path in (path for name in names for path in _files(str(name))):
        if is_study(path):
            study = load_study(str(path))
            recipes += [cell.load(study.seed_list[0]).recipe for cell in cells(study, overrides, unset)]
        else:
            recipes.append(load(str(path), overrides, unset).recipe)
    return merged_requirements(recipes)


def check_file(path: Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of one recipe or study, with all of its cells, in the document of `cse check`."""
    kind = "study" if is_study(path) else "recipe"
    about: dict[str, Any] = {"kind": kind, "name": name_of(path), "path": str(path)}
    facts: dict[str, Any] = {}
    problems = []
    try:
        if kind == "study":
            study = load_study(str(path))
            made, tried = cells(study, overrides, unset), trials(study, overrides, unset)
            facts = {"cells": len(made), "seeds": list(study.seed_list), "trials": len(tried)}
        else:
            loaded = load(str(path), overrides, unset)
            lacking = [one for one in requirements(loaded.recipe) if one.installation]
            notes = [f"{one.title}: {NOT_INSTALLED}; {one.installation}" for one in lacking]
            facts = {"hash": loaded.recipe.hash(), "warnings": [*loaded.notes, *notes]}
    except RecipeError as error:
        problems = [{"where": p.where, "path": p.keys, "message": p.message, "text": str(p)} for p in error.problems]
    except CseError as error:
        problems = [{"where": str(path), "path": "", "message": str(error), "text": f"{path}: {error}"}]
    return {**about, "valid": not problems, **facts, "problems": problems}
