"""The recipe files that finished runs come from: their names, and what has changed in them since."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cse_cli.core.formatting import grouped
from cse_cli.core.results import Result
from cse_cli.recipe.changes import recipe_changes
from cse_cli.recipe.files import bare_name, real_path, recipe_name, roots
from cse_cli.recipe.load import load
from cse_cli.runs.record import read_recipe
from registry.errors import CseError, UnknownNameError
from registry.paths import is_file

SHIPPED = "_recipes"


RecipeStatus = Literal["current", "variant", "other_model", "changed", "unreadable", "missing"]
"""Relation of a run to the current file of its recipe, in the order in which one represents several: the same settings,
settings that its `--set` explains, another model, other settings, a file that cannot be read, or no such file."""


class RecipeFacts(NamedTuple):
    """`Recipe.hash()` of a recipe, and `Recipe.resolved()` with lists for tuples."""

    settings: str
    resolved: dict[str, Any]


@cache
def recipe_today(name: str) -> RecipeFacts:
    """Return the facts of a recipe's current file. An error if it does not exist or is not valid."""
    recipe = load(name).recipe
    return RecipeFacts(recipe.hash(), json.loads(json.dumps(recipe.resolved())))


def read_resolved(run_id: str | None) -> dict[str, Any] | None:
    """Return the resolved recipe of a run, or None if it cannot be read."""
    try:
        return read_recipe(run_id) if run_id else None
    except CseError:
        return None


def changed_settings(result: Result) -> tuple[str, ...]:
    """Return the differences of a run from its recipe's current file, as `key=value`. Empty if they are not known."""
    ran = read_resolved(result.run_id)
    try:
        today = recipe_today(result.source if is_file(Path(result.source)) else result.recipe).resolved
    except CseError:
        return ()
    found = []
    for change in [] if ran is None else recipe_changes([today, ran]):
        value = change.values[1]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found.append(f"no {change.key}" if value is None else f"{change.key}={text}")
    return tuple(sorted(found))


def is_of_recipe(result: Result, argument: str) -> bool:
    """Return whether a run has the recipe of an argument: the file of a path, or any recipe with this name."""
    if argument.endswith(".toml") and result.source:
        return real_path(Path(argument)) == real_path(Path(result.source))
    return recipe_name(result.recipe) == recipe_name(argument)


def origin_of(result: Result) -> str:
    """Return the path of a run's recipe, or its name if the file is not on this machine.

    A recipe with a bare name on another machine is the recipe with this name on this machine.
    """
    source, name = result.source, result.recipe
    shipped = source.endswith(f"/{SHIPPED}/{name}.toml")  # another installation's
    if source and not shipped and is_file(Path(source)):
        return str(real_path(Path(source)))
    if source and not shipped and not source.endswith(f"/recipes/{name}.toml"):
        return source
    file = Path(name) if name.endswith(".toml") else _named(name)
    return name if file is None else str(real_path(file))


def _named(name: str) -> Path | None:
    return next((file for root in roots() if is_file(file := root / f"{name}.toml")), None)


def names_of(recipes: Mapping[str, str]) -> dict[str, str]:
    """Return origin → name for origin → recorded name. Files with the same name get the end of their path."""
    bare = {origin: bare_name(Path(origin)) if origin.endswith(".toml") else origin for origin in recipes}
    names = {origin: bare[origin] or recipe_name(called) for origin, called in recipes.items()}
    for name, origins in grouped(recipes, names.__getitem__).items():
        if len(origins) > 1 or _named(name) is not None:
            names |= {origin: _tail(origin, origins) for origin in origins if bare[origin] is None}
    return names


def _tail(path: str, others: Sequence[str]) -> str:
    """Return the shortest end of a path, with its directory, that no other path has."""
    parts = Path(path).parts
    for count in range(2, len(parts)):
        if all(Path(other).parts[-count:] != parts[-count:] for other in others if other != path):
            return Path(*parts[-count:]).as_posix()
    return path


def why_unreadable(result: Result) -> str:
    """Return why the current file of a run's recipe cannot be read, or an empty string."""
    try:
        recipe_today(origin_of(result))
    except CseError as error:
        return error.message
    return ""


def recipe_status(result: Result, changes: Sequence[str] = ()) -> RecipeStatus:
    """Return the relation of a run to the current file of its recipe. `changes` are those of its `--set`."""
    origin = origin_of(result)
    if not is_file(Path(origin)):
        return "missing"
    try:
        today = recipe_today(origin)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "unreadable"
    if today.settings == result.recipe_hash:
        return "current"
    if result.model not in {str(part.get("model", "")) for part in today.resolved["encoders"].values()}:
        return "other_model"
    if not changes:
        return "changed"
    ran = read_resolved(result.run_id)
    differing = [] if ran is None else recipe_changes([today.resolved, ran])
    return "variant" if all(_explained(change.key, changes) for change in differing) else "changed"


def _explained(key: str, changes: Sequence[str]) -> bool:
    """Return whether a change sets this key, a table around it or a key in it."""
    for change in changes:
        changed = change.removeprefix("no ").partition("=")[0].removesuffix(".name")
        changed = re.split(r"\.\d+(?:\.|$)", changed)[0]  # changes have no positions in arrays
        if f"{key}.".startswith(f"{changed}.") or f"{changed}.".startswith(f"{key}."):
            return True
    return False
