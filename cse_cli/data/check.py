"""`cse check`: many recipes and studies validated at once, and what they need on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cse_cli.data.files import demand_few_entries
from cse_cli.recipe.cells import cells
from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.files import all_recipes, all_studies, find, is_study, name_of
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import Requirement, merged_requirements
from cse_cli.recipe.study import find_study, load_study
from cse_cli.recipe.unusual import unusual, unusual_study
from registry.errors import CseError


def recipe_files(arguments: Sequence[str]) -> list[Path]:
    """Return the files that paths, folders and names mean; every recipe and study known by name where there are none.

    Raises:
        CseError: A name is unknown, or a folder holds no recipe.
    """
    if not arguments:
        return [*all_recipes().values(), *all_studies().values()]
    return [path for argument in arguments for path in _files(argument)]


def _files(argument: str) -> Iterator[Path]:
    folder = Path(argument)
    if not argument or not folder.is_dir():  # "" would be the current folder
        yield find_study(argument) or find(argument)
        return
    demand_few_entries(folder, None, "name a folder that holds recipes and little else")
    found = sorted(folder.rglob("*.toml"))
    if not found:
        raise CseError(f"no recipe (*.toml) below the folder '{argument}'", "`cse check` alone checks all known ones")
    yield from found


def requirements_of(names: Sequence[str | Path], overrides: Sequence[str] = ()) -> list[Requirement]:
    """Return what recipes, and the cells of studies, need on this machine, each once.

    Args:
        names: Paths, folders and names, as `cse check` takes them.
        overrides: As `--set` takes them, laid over each recipe or every cell.

    Raises:
        CseError: A name is unknown, or a recipe is not valid.
    """
    paths, recipes = [path for name in names for path in _files(str(name))], []
    for path in paths:
        if is_study(path):
            study = load_study(str(path))
            recipes += [cell.load(study.seed_list[0]).recipe for cell in cells(study, overrides)]
        else:
            recipes.append(load(str(path), overrides).recipe)
    return merged_requirements(recipes)


def check_file(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return what `cse check` says of one file; of a study, every cell's recipe is checked too.

    Args:
        path: Of the recipe or study.
        overrides: As `--set` takes them, laid over the recipe or over every cell.
    """
    kind = "study" if is_study(path) else "recipe"
    known: dict[str, Any]
    about: dict[str, Any] = {"kind": kind, "name": name_of(path), "path": str(path)}
    try:
        if kind == "study":
            study = load_study(str(path))
            made = cells(study, overrides)
            warnings = unusual_study(made, len(study.seed_list))
            known = {"cells": len(made), "seeds": list(study.seed_list), "warnings": list(warnings)}
        else:
            recipe = load(str(path), overrides).recipe
            known = {"hash": recipe.hash(), "warnings": list(unusual(recipe))}
    except RecipeError as error:
        problems = [{"where": p.where, "path": p.keys, "message": p.message, "text": str(p)} for p in error.problems]
        return {**about, "valid": False, "problems": problems}
    except CseError as error:
        problem = {"where": str(path), "path": "", "message": str(error), "text": f"{path}: {error}"}
        return {**about, "valid": False, "problems": [problem]}
    return {**about, "valid": True, **known, "problems": []}
