"""`--set dotted.key=value` and `--unset dotted.key`: single values laid over a recipe's tables."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.recipe.merge import rename_component
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problem, RecipeError, dotted


@dataclass(frozen=True)
class Override:
    """One value from outside the files.

    Args:
        keys: Path as written; positions in arrays are still text.
        value: What to put there; ignored by `unset`.
        label: How messages name it.
    """

    keys: tuple[str, ...]
    value: Any
    label: str
    unset: bool = False


def parse(assignments: Sequence[str], unset: Sequence[str] = ()) -> list[Override]:
    """Return the overrides that `--set` and `--unset` texts mean; a value that is not TOML counts as text.

    Raises:
        RecipeError: An assignment has no `=` or its key cannot be read; all of them are told.
    """
    problems: list[Problem] = []
    overrides = [Override(_keys(key, "--unset", problems), None, f"--unset {key}", unset=True) for key in unset]
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        label = f"--set {key.strip()}"
        if not equals:
            problems.append(Problem(label, "", "needs a value: --set dotted.key=value"))
            continue
        overrides.append(Override(_keys(key, "--set", problems), toml_value(value.strip()), label))
    if problems:
        raise RecipeError(problems)
    # A new component drops the parameters of the old one, so it comes before the parameters meant for it.
    return sorted(overrides, key=lambda o: (not o.unset, bool(o.keys) and o.keys[-1] != "name"))


def assigned(path: str, value: Any) -> Override:
    """Return the override that puts a value, not text, at a dotted path.

    Raises:
        RecipeError: The path cannot be read.
    """
    problems: list[Problem] = []
    keys = _keys(path, "--set", problems)
    if problems:
        raise RecipeError(problems)
    return Override(keys, value, f"--set {path}")


def _keys(text: str, option: str, problems: list[Problem]) -> tuple[str, ...]:
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except ValueError:
        problems.append(Problem(f"{option} {text.strip()}", "", "the key is not a dotted TOML key such as train.seed"))
        return ()
    keys: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        key, table = next(iter(table.items()))
        keys.append(key)
    return tuple(keys)


def toml_value(text: str) -> Any:
    """Return the value that a text is in TOML; one that is none counts as text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def apply(tables: dict[str, Any], overrides: Sequence[Override]) -> tuple[dict[str, Any], tuple[Keys, ...]]:
    """Return new tables with every override in them, and the path that each one means there.

    Raises:
        RecipeError: A path leads through something that is not there or not a table; all of them are told.
    """
    changed = copy.deepcopy(tables)
    problems: list[Problem] = []
    paths: list[Keys] = []
    for override in overrides:
        try:
            paths.append(_apply_one(changed, override))
        except LookupError as error:
            problems.append(Problem(override.label, "", str(error.args[0])))
    if problems:
        raise RecipeError(problems)
    return changed, tuple(paths)


def _apply_one(tables: dict[str, Any], override: Override) -> Keys:
    at: Any = tables
    path: Keys = ()
    for number, key in enumerate(override.keys):
        path = (*path, _step(at, key, path))
        if number < len(override.keys) - 1:
            at = _entered(at, path, create=not override.unset)
    last = path[-1]
    if override.unset:
        if isinstance(at, dict) and last not in at:
            raise LookupError("nothing of that name is set")
        del at[last]
        return path
    if last == "name":
        rename_component(tables, path[:-1], override.value)
    at[last] = copy.deepcopy(override.value)
    return path


def _entered(at: Any, path: Keys, *, create: bool) -> Any:
    key = path[-1]
    if isinstance(at, dict) and key not in at:
        if not create:
            raise LookupError(f"'{dotted(path)}' is not set")
        at[key] = {}
    inner = at[key]
    if not isinstance(inner, dict | list):
        raise LookupError(f"'{dotted(path)}' is a value, not a table")
    return inner


def _step(at: Any, key: str, path: Keys) -> str | int:
    """Return the key, or for an array the position it means: a number, or the `name` of one of its tables."""
    if isinstance(at, dict):
        return key
    if key.isascii() and key.isdigit() and int(key) < len(at):
        return int(key)
    named = [i for i, item in enumerate(at) if isinstance(item, dict) and item.get("name") == key]
    if len(named) == 1:
        return named[0]
    size = f"{len(at)} element{'' if len(at) == 1 else 's'}"
    raise LookupError(f"'{dotted(path)}' has {size}, counted from 0: no '{key}' among them")
