"""Overrides: settings of `--set` and `--unset`, a study or a search, which replace values of a recipe's files."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.core.formatting import UNSET
from cse_cli.recipe.keys import Keys, dotted, inline, parse_dotted
from cse_cli.recipe.problems import Problem, RecipeError

EXCLUSIVE = {"steps": "epochs", "epochs": "steps"}
"""Key of [train] → key that it replaces, because both set the length of the training."""


@dataclass(frozen=True)
class Override:
    """One value that replaces a value of the files.

    Positions in arrays are strings in `keys`. If `unset`, the key is removed, and the value ignored.
    """

    keys: tuple[str, ...]
    value: Any
    label: str
    unset: bool = False

    @classmethod
    def of(cls, path: str, value: Any) -> Override:
        """Return the override that sets a dotted path to a value."""
        return cls(_keys(path, "--set"), value, f"--set {path.strip()}")

    @classmethod
    def parse(cls, assignment: str) -> Override:
        """Return the override that `key=value` describes."""
        path, equals, value = assignment.partition("=")
        if not equals:
            message = "requires a value, for example --set train.seed=1"
            raise RecipeError([Problem(f"--set {path.strip()}", "", message, "recipe.override_without_value")])
        return cls.of(path, parse_value(value.strip()))

    @classmethod
    def remove(cls, path: str) -> Override:
        """Return the override that removes a dotted path."""
        return cls(_keys(path, "--unset"), None, f"--unset {path}", unset=True)

    @property
    def path(self) -> str:
        """Dotted path."""
        return dotted(self.keys)

    def __str__(self) -> str:
        return f"{self.path}={inline(self.value)}"


def parse_overrides(assignments: Sequence[str | Override], unset: Sequence[str] = ()) -> list[Override]:
    """Return the overrides that the texts of `--set` and `--unset` describe."""
    problems: list[Problem] = []
    removals: list[Override] = []
    values: list[Override] = []
    for parse, one in [*((Override.remove, path) for path in unset), *((Override.parse, one) for one in assignments)]:
        try:
            override = one if isinstance(one, Override) else parse(one)
            (removals if override.unset else values).append(override)
        except RecipeError as error:
            problems += error.problems
    if problems:
        raise RecipeError(problems)
    return removals + values


def _keys(text: str, option: str) -> tuple[str, ...]:
    keys = parse_dotted(text)
    if not keys:
        message = "not a dotted TOML key, for example train.seed"
        raise RecipeError([Problem(f"{option} {text.strip()}", "", message, "recipe.invalid_path")])
    return keys


def parse_value(text: str) -> Any:
    """Return the value of a TOML text, or the text itself if it is not valid TOML."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def apply_overrides(tables: dict[str, Any], overrides: Sequence[Override]) -> tuple[dict[str, Any], tuple[Keys, ...]]:
    """Return a copy of the tables with every override, and the path of each override in it."""
    changed = copy.deepcopy(tables)
    problems: list[Problem] = []
    paths: list[Keys] = []
    for override in overrides:
        at: Any = changed
        path: Keys = ()
        try:
            for depth, key in enumerate(override.keys, start=1):
                path = (*path, _step(at, key, path))
                if override.unset and isinstance(at, dict) and key not in at:
                    raise LookupError(f"'{dotted(path)}' is not set")
                if depth < len(override.keys):
                    at = at.setdefault(key, {}) if isinstance(at, dict) else at[path[-1]]
                    if not isinstance(at, dict | list):
                        raise LookupError(f"'{dotted(path)}' is a value, not a table")
            paths.append(path)
            if override.unset:
                del at[path[-1]]
            else:
                merge_into(at, {path[-1]: override.value}, path[:-1])
        except LookupError as error:
            problems.append(Problem(override.label, "", str(error.args[0]), "recipe.unknown_path"))
    if problems:
        raise RecipeError(problems)
    return changed, tuple(paths)


def _step(at: Any, key: str, path: Keys) -> str | int:
    """Return the key, or the position in an array that a number or the `name` of a component refers to."""
    if isinstance(at, dict):
        return key
    if key.isascii() and key.isdigit() and int(key) < len(at):
        return int(key)
    named = [i for i, item in enumerate(at) if isinstance(item, dict) and item.get("name") == key]
    if len(named) == 1:
        return named[0]
    raise LookupError(f"'{dotted(path)}' has no element '{key}'. Its length is {len(at)}, positions start at 0")


def merge_into(base: Any, top: Mapping[Any, Any], keys: Keys) -> None:
    """Merge a table at the path `keys` into `base` key by key. Values that are not tables are replaced.

    `train.steps` also replaces `train.epochs`, and vice versa. A component with another `name` keeps its parameters:
    those that it does not accept are problems of the recipe.
    """
    if keys == ("train",):
        for key in top.keys() & EXCLUSIVE.keys():
            base.pop(EXCLUSIVE[key], None)
    for key, value in top.items():
        inherited = base[key] if isinstance(base, list) else base.get(key)
        if isinstance(inherited, dict) and isinstance(value, Mapping):
            merge_into(inherited, value, (*keys, key))
        else:
            base[key] = copy.deepcopy(value)


def setting_text(value: Any) -> str:
    """Return a value of a recipe in a form close to TOML, or a dash for None."""
    if value is None:
        return UNSET
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {setting_text(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(setting_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value, default=str)
