"""Recipe with the best values of a search, which extends the searched recipe."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from cse_cli.recipe.files import find_parent
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.recipe.overrides import apply_overrides, parse_overrides
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.results import Search, Trial, verdict
from registry.errors import CseError

_MADE_BY = "# Found by `cse tune`: search "
_WIDTH = 110


@dataclass(frozen=True)
class TunedRecipe:
    """A recipe with the values of a trial.

    `changes` and `unset` have the overrides and `--unset` keys of every trial, then those of this one.
    """

    base: LoadedRecipe
    changes: tuple[str | Override, ...]
    unset: tuple[str, ...]

    def load(self, extra: Sequence[Override] = ()) -> LoadedRecipe:
        """Return the recipe with the values and further overrides."""
        return load(str(self.base.path), [*self.changes, *extra], self.unset)


def tuned_recipe(search: Search, trial: Trial | None = None) -> TunedRecipe:
    """Return the recipe in full length, with the values of a trial or with its own."""
    config = search.config
    now = config.load_base()
    if now.recipe.hash() != search.recipe_hash:
        message = f"recipe '{config.recipe}' has changed since search '{search.name}'"
        raise CseError(message, f"undo the change in {now.path}, or search again", code="tune.changed_recipe")
    values = {} if trial is None or trial.own else trial.values
    found, removed = settings_of(config.parameters, values)
    return TunedRecipe(load(config.recipe), (*config.overrides, *found), (*config.unset, *removed))


def check_file(file: Path, search: str) -> None:
    """Refuse a file that must not be overwritten, before the search starts."""
    if file.suffix != ".toml":
        better = file.with_suffix(".toml") if file.name else "best.toml"
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"use {better}", code="tune.not_toml")
    if not file.parent.is_dir():
        message = f"--save-best: directory '{file.parent}' does not exist"
        raise CseError(message, "create it, or use another directory", code="tune.no_directory")
    if file.is_dir() or (file.exists() and not _belongs_to(file, search)):
        message = f"--save-best: '{file}' exists and does not belong to this search"
        raise CseError(message, "use another name", code="tune.file_exists")


def _belongs_to(file: Path, search: str) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            return next(lines, "").startswith(f"{_MADE_BY}{search},")
    except (OSError, ValueError):
        return False


def save_recipe(file: Path, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> None:
    """Write the recipe with the values of the best trial. `day` is in ISO form."""
    check_file(file, search.name)
    expected = tuned.load().recipe.hash()
    draft = file.with_name(f".{file.stem}.draft.toml")
    try:
        for parent in _parents(tuned.base, file):
            draft.write_text(_text(parent, tuned, search, best, day), encoding="utf-8")
            if load(str(draft)).recipe.hash() == expected:
                draft.replace(file)
                return
    except OSError as error:
        message = f"--save-best: '{file}' cannot be written: {error}"
        raise CseError(message, "use another directory", code="tune.not_written") from error
    finally:
        draft.unlink(missing_ok=True)
    message = f"--save-best: '{file}' would load to another recipe"
    raise CseError(message, f"write it to {tuned.base.path.parent}", code="tune.not_written")


def _parents(base: LoadedRecipe, file: Path) -> list[str]:
    """Return possible values of `extends`: the name if it means the same file from there, then the path."""
    named = find_parent(base.name, file.absolute())
    path = os.path.relpath(base.path.resolve(), file.absolute().parent.resolve())
    same = named is not None and named.resolve() == base.path.resolve()
    return [base.name, path] if same else [path]


def _text(parent: str, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> str:
    steps = f", {search.config.steps} steps" if search.config.steps else ""
    own = "" if search.own is None else f" Score of the recipe's values: {search.own.score:.2f}."
    score, about = f"{search.metric} {best.score:.2f} ({search.config.scored_by}{steps}).{own}", verdict(search)
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    comment = [f"{_MADE_BY}{search.name}, trial {best.number} of {len(search.trials)}, {day}."]
    for sentence in (score, f"{about[:1].upper()}{about[1:]}."):
        comment += wrap.wrap(sentence)
    paper = ["paper"] if tuned.base.recipe.paper is not None else []  # the values are not those of the paper
    removed = [*paper, *tuned.unset]
    head = {"extends": parent, **({"remove": removed} if removed else {})}
    tables = {**head, "title": f"{tuned.base.recipe.title}, tuned", **_changed_tables(tuned)}
    return "\n".join(comment) + "\n" + tomlkit.dumps(tables)


def _changed_tables(tuned: TunedRecipe) -> dict[str, Any]:
    """Return the changed tables of the recipe. Arrays are whole, because `extends` replaces them."""
    changes = parse_overrides(tuned.changes, tuned.unset)
    tables, paths = apply_overrides(tuned.base.tables, changes)
    changed: dict[str, Any] = {}
    for path, change in zip(paths, changes, strict=True):
        if change.unset:
            continue
        value, target = tables, changed
        *tail, last = _keys_to_array(path)
        for key in tail:
            value, target = value[key], target.setdefault(key, {})
        if last in value:  # `train.steps` replaces an earlier `train.epochs`
            target[last] = value[last]
    if "file" in changed.get("data", {}):
        file = tuned.load().recipe.data.file  # relative to this directory, not to that of the new file
        changed["data"]["file"] = list(file) if isinstance(file, tuple) else file
    return changed


def _keys_to_array(path: Sequence[str | int]) -> list[str]:
    """Return the keys of a path up to its first array."""
    end = next((place for place, key in enumerate(path) if isinstance(key, int)), len(path))
    return [str(key) for key in path[:end]]
