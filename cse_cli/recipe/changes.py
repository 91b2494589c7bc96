"""Settings in which resolved recipes differ, their values as short text, and the command that runs a recipe again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from cse_cli.core.results import Result
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.keys import inline
from cse_cli.recipe.load import load
from cse_cli.recipe.overrides import setting_text
from cse_cli.recipe.schema import LossPart, View, settings
from registry import REGISTRIES
from registry.errors import CseError, UnknownNameError
from registry.paths import is_file

_ABSENT = object()


class Change(BaseModel, frozen=True):
    """A key that differs between recipes.

    `key` is the path of a whole table if a recipe lacks it. `values` has None for a recipe that lacks the key.
    """

    key: str
    values: tuple[Any, ...]


def recipe_changes(recipes: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the settings in which resolved recipes differ."""
    return _table_changes([settings(recipe) for recipe in recipes], "")


def _table_changes(tables: Sequence[Mapping[str, Any]], prefix: str) -> list[Change]:
    found: list[Change] = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [_as_table(table.get(key, _ABSENT)) for table in tables]
        if all(isinstance(value, Mapping) for value in values):
            found += _table_changes(values, f"{prefix}{key}.")
        elif any(value != values[0] for value in values):
            found.append(Change(key=f"{prefix}{key}", values=tuple(None if v is _ABSENT else v for v in values)))
    return found


def _as_table(value: Any) -> Any:
    """Return a list of components as a table with their names as keys, as in `--set`. Other values stay unchanged."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "name" in part for part in value):
        names = [part["name"] for part in value]
        if len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


DEFAULTS = "default"


_TABLES: dict[str, type[BaseModel]] = {"views": View, "losses": LossPart}
"""Sections whose tables have keys of the recipe in addition to those of the component."""


def changes_table(changes: Sequence[Change], headings: Sequence[str]) -> Table:
    """Return the settings that differ, one row for each."""
    values = [[without_directories(value) for value in change.values] for change in changes]
    texts = [[short_setting(one.key, value) for value in of] for one, of in zip(changes, values, strict=True)]
    return plain_table(["", *headings], [(one.key, *row) for one, row in zip(changes, texts, strict=True)])


def without_directories(value: Any) -> Any:
    """Return a recipe with file names instead of absolute paths, which are private."""
    if isinstance(value, Mapping):
        return {key: without_directories(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_directories(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def short_setting(key: str, value: Any) -> str:
    """Return a value of a resolved recipe as short text: of components, the parameters that are not the default."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        return ", ".join(short_setting(key, one) for one in value)
    if not isinstance(value, Mapping):
        return setting_text(value)
    name = str(value.get("name", ""))
    defaults = _defaults(key, name)
    others = {inner: of for inner, of in value.items() if inner != "name" and _plain(of) != defaults.get(inner, inner)}
    shown = {inner: short_setting(f"{key}.{inner}", of) for inner, of in others.items()}
    texts = [f"{inner} = {text}" for inner, text in shown.items() if text != DEFAULTS]
    if not texts:
        return name or DEFAULTS
    return f"{name} ({', '.join(texts)})" if name else f"({', '.join(texts)})"


def _defaults(key: str, name: str) -> dict[str, Any]:
    """Return key → default of the table at a path."""
    parts = key.split(".")
    models = [_TABLES[parts[0]]] if len(parts) == 2 and parts[0] in _TABLES else []
    kinds = [registry for part in reversed(parts) for registry in REGISTRIES if registry.kind.startswith(part)]
    models += [kinds[0][name].parameters] if kinds and name in kinds[0] else []
    fields = {inner: field for model in models for inner, field in model.model_fields.items()}
    return {inner: _plain(of.get_default(call_default_factory=True)) for inner, of in fields.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


SAVED = "recipe.toml"
"""Name of the file in which a reader saves the resolved recipe."""


class Rerun(NamedTuple):
    """Command that runs an experiment again.

    `changes` are the differences from the recipe's current file, or None if they are unknown. `obstacle` is the reason
    why the resolved recipe must be saved first, or why the command may differ.
    """

    changes: tuple[Change, ...] | None
    command: str
    obstacle: str = ""


def rerun(result: Result, resolved: Mapping[str, Any] | None, seeds: Sequence[int]) -> Rerun:
    """Return the command that runs a recipe with these seeds again, and only if its recipe has the hash of the run."""

    def command(*words: str) -> str:
        seed_options = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
        return shlex.join(["cse", "run", *words, *seed_options])

    def from_saved(reason: str) -> str:
        return f"{reason}, so save the recipe above as {SAVED} first"

    source = Path(result.source)
    here = is_file(source)
    file = result.source if here else result.recipe
    name = (bare_name(source) or source.name) if here else result.recipe  # without directories
    try:
        today = load(file).recipe
    except CseError as error:
        reason = "No recipe has this name" if isinstance(error, UnknownNameError) else "The recipe's file is not valid"
        return Rerun(None, command(SAVED), from_saved(reason))
    if today.hash() == result.recipe_hash:
        return Rerun((), command(name))
    if resolved is None:
        return Rerun(None, command(name), "The recipe's file has changed, and the recipe of the run is unknown")
    found = tuple(recipe_changes([today.resolved(), resolved]))
    sets = [f"{change.key}={inline(change.values[1])}" for change in found if change.values[1] is not None]
    unset = [change.key for change in found if change.values[1] is None]
    # A search range of a setting that no longer exists is an error.
    unset += [f"tune.{name}" for name in today.tune if name not in resolved.get("tune", {})]
    with suppress(CseError):
        if load(file, sets, unset).recipe.hash() == result.recipe_hash:
            options = [*(("--set", text) for text in sets), *(("--unset", key) for key in unset)]
            return Rerun(found, command(name, *(word for option in options for word in option)))
    return Rerun(found, command(SAVED), from_saved("No settings turn the recipe's file into this recipe"))
