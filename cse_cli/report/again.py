"""How what ran differs from its recipe's file, and the command that runs it again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.compare.recipes import Change, changes
from cse_cli.recipe.load import load
from cse_cli.results import Result
from registry.errors import CseError, UnknownNameError

SAVED = "recipe.toml"
"""Where a reader is told to save a recipe that no file describes."""


@dataclass(frozen=True)
class Again:
    """How to run something again.

    Args:
        differs: How it differs from the recipe's file today; None where that is not known.
        command: Does exactly this experiment.
        told: What has to be done before, and why.
    """

    differs: tuple[Change, ...] | None
    command: str
    told: str = ""


def again(result: Result, resolved: Mapping[str, Any] | None, seeds: Sequence[int]) -> Again:
    """Return how to run a recipe with these seeds again; every command is tried out as far as its recipe's hash."""
    chosen = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    try:
        today = load(result.recipe).recipe
    except CseError as error:
        why = (
            "no recipe of this name is found"
            if isinstance(error, UnknownNameError)
            else "the recipe's file has mistakes"
        )
        return Again(None, _command([SAVED, *chosen]), f"{why}: save the recipe above as {SAVED}")
    if today.hash() == result.recipe_hash:
        return Again((), _command([result.recipe, *chosen]))
    if resolved is None:
        return Again(
            None, _command([result.recipe, *chosen]), "the recipe's file has changed, and what ran is not known"
        )
    found = tuple(changes([today.resolved(), resolved]))
    sets = [f"{change.key}={_toml(change.values[1])}" for change in found if change.values[1] is not None]
    unset = [change.key for change in found if change.values[1] is None]
    # A search's range over what is not there any more is a mistake, so it goes too.
    unset += [f"tune.{name}" for name in today.tune if name not in resolved.get("tune", {})]
    if _hash(result.recipe, sets, unset) == result.recipe_hash:
        options = [word for text in sets for word in ("--set", text)] + [w for key in unset for w in ("--unset", key)]
        return Again(found, _command([result.recipe, *options, *chosen]))
    return Again(
        found,
        _command([SAVED, *chosen]),
        f"no settings lead from the recipe's file to it: save the recipe above as {SAVED}",
    )


def without_folders(value: Any) -> Any:
    """Return a recipe with the names of files alone: where they lay says nothing to others."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _command(words: Sequence[str]) -> str:
    return shlex.join(["cse", "run", *words])


def _hash(recipe: str, overrides: Sequence[str], unset: Sequence[str]) -> str | None:
    try:
        return load(recipe, overrides, unset).recipe.hash()
    except CseError:
        return None


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)
