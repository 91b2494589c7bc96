"""Origin of a run: the file of its recipe, its name, and whether it still describes the same experiment."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from cse_cli.analysis.runs import read_resolved, recipe_changes, recipe_today
from cse_cli.core.paths import cache
from cse_cli.core.results import Result
from cse_cli.recipe.catalog import RecipeFacts
from cse_cli.recipe.files import bare_name, real_path, recipe_name, roots
from registry.errors import CseError, UnknownNameError
from registry.paths import is_file, write_atomically

RecipeStatus = Literal["current", "variant", "changed", "other_model", "missing"]
"""Relation of a run to the current file of its recipe: the same settings, settings that its `--set` explains, other
settings, another model, or no such file."""
STATUSES: tuple[RecipeStatus, ...] = ("current", "variant", "other_model", "changed", "missing")
"""Statuses in the order in which one represents several."""
SHIPPED = "_recipes"
"""Directory of an installation's recipes."""


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
    """Return the file of the recipe with a bare name."""
    return next((file for root in roots() if is_file(file := root / f"{name}.toml")), None)


def names_of(recipes: Mapping[str, str]) -> dict[str, str]:
    """Return origin → name for origin → recorded name. Files with the same name get the end of their path."""
    bare = {origin: bare_name(Path(origin)) if origin.endswith(".toml") else origin for origin in recipes}
    names = {origin: bare[origin] or recipe_name(called) for origin, called in recipes.items()}
    same: dict[str, list[str]] = defaultdict(list)
    for origin, name in names.items():
        same[name].append(origin)
    for name, origins in same.items():
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


def recipe_status(result: Result, changes: Sequence[str] = (), variants: Variants | None = None) -> RecipeStatus:
    """Return the relation of a run to the current file of its recipe. `changes` are those of its `--set`."""
    origin = origin_of(result)
    if not is_file(Path(origin)):
        return "missing"
    try:
        today = recipe_today(origin)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if today.settings == result.recipe_hash:
        return "current"
    if result.model not in {str(part.get("model", "")) for part in today.resolved["encoders"].values()}:
        return "other_model"
    return "variant" if changes and (variants or Variants()).is_variant(result, changes, today) else "changed"


class Variants:
    """Cache of whether `--set` explains the differences of runs from the current files of their recipes.

    Reading the resolved recipe of a run takes two milliseconds. The keys are the settings hashes of both sides. You can
    delete the file at any time.
    """

    def __init__(self) -> None:
        self._file = cache() / "variants.json"
        self._known: dict[str, bool] = {}
        with suppress(OSError, ValueError, TypeError):
            self._known = dict(json.loads(self._file.read_bytes()))
        self._read = len(self._known)

    def is_variant(self, result: Result, changes: Sequence[str], today: RecipeFacts) -> bool:
        """Return whether changes explain all differences between a run and the current file of its recipe."""
        key = " ".join((today.settings, result.recipe_hash, *changes))
        if key not in self._known:
            if (ran := read_resolved(result.run_id)) is None:
                return True
            differing = recipe_changes([today.resolved, ran])
            self._known[key] = all(_explained(change.key, changes) for change in differing)
        return self._known[key]

    def save(self) -> None:
        """Write the file if the cache has new entries."""
        if len(self._known) > self._read:
            with suppress(OSError):  # a directory that cannot be written is read without a cache
                write_atomically(self._file, json.dumps(self._known))


def _explained(key: str, changes: Sequence[str]) -> bool:
    """Return whether a change sets this key, a table around it or a key in it."""
    for change in changes:
        changed = change.removeprefix("no ").partition("=")[0].removesuffix(".name")
        changed = ".".join(_until_position(changed))
        if f"{key}.".startswith(f"{changed}.") or f"{changed}.".startswith(f"{key}."):
            return True
    return False


def _until_position(key: str) -> list[str]:
    """Return the parts of a dotted key before a position in an array, because changes have no positions."""
    parts = key.split(".")
    return parts[: next((place for place, part in enumerate(parts) if part.isdecimal()), len(parts))]
