"""The values found as a recipe that extends the one they were found for, and says where they came from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from cse_cli.recipe.files import find_parent
from cse_cli.recipe.load import LoadedRecipe, apply, load, parse
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.results import Search, Trial, verdict
from registry.errors import CseError

_MADE_BY = "# Found by `cse tune`: study "
_WIDTH = 110


@dataclass(frozen=True)
class TunedRecipe:
    """A recipe with found values.

    Args:
        base: The recipe as its file has it.
        changes: `--set` texts: those of every trial, then the values found.
        unset: `--unset` keys of every trial, then those of the parts found.
    """

    base: LoadedRecipe
    changes: tuple[str, ...]
    unset: tuple[str, ...]

    def load(self, extra: Sequence[str] = ()) -> LoadedRecipe:
        """Return the recipe with the values in it.

        Args:
            extra: Further `--set` texts.
        """
        return load(str(self.base.path), [*self.changes, *extra], self.unset)


def tuned_recipe(search: Search, trial: Trial | None = None) -> TunedRecipe:
    """Return a search's recipe in its full length: with a trial's values, or with its own.

    Raises:
        CseError: The recipe is not what it was.
    """
    steps = [] if search.steps is None else [f"train.steps={search.steps}"]
    now = load(search.recipe, [*search.overrides, *steps], search.unset)
    if now.recipe.hash() != search.recipe_hash:
        raise CseError(
            f"{search.recipe} has changed since study '{search.study}': what was found belongs to another recipe",
            f"undo the change in {now.path}, or tune it anew",
        )
    values = {} if trial is None or trial.own else trial.values
    found, removed = settings_of(search.parameters, values)
    return TunedRecipe(load(search.recipe), (*search.overrides, *found), (*search.unset, *removed))


def check_file(file: Path, study: str) -> None:
    """Refuse a file that holds something else, before hours are spent on what is to be written there.

    Raises:
        CseError: It is there and not from this study, or its folder is missing.
    """
    if file.suffix != ".toml":
        better = file.with_suffix(".toml") if file.name else "best.toml"
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"--save-best {better}")
    if not file.parent.is_dir():
        raise CseError(f"--save-best: there is no folder {file.parent}", "make it, or write somewhere else")
    if file.is_dir() or (file.exists() and not _is_of(file, study)):
        raise CseError(f"--save-best: {file} exists, and is not from this study", "choose another name")


def _is_of(file: Path, study: str) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            return next(lines, "").startswith(f"{_MADE_BY}{study},")
    except (OSError, ValueError):
        return False


def save_recipe(file: Path, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> None:
    """Write the recipe; nothing is left behind where it would not load to what was tried.

    Args:
        file: Where to.
        tuned: What to write.
        search: Where it came from.
        best: The trial that had these values.
        day: When, in ISO form.

    Raises:
        CseError: The file cannot be written.
    """
    check_file(file, search.study)
    wanted = tuned.load().recipe.hash()
    draft = file.with_name(f".{file.stem}.draft.toml")
    try:
        for parent in _parents(tuned.base, file):
            draft.write_text(_text(parent, tuned, search, best, day), encoding="utf-8")
            if load(str(draft)).recipe.hash() == wanted:
                draft.replace(file)
                return
    except OSError as error:
        raise CseError(f"--save-best: {file} cannot be written: {error}", "write it somewhere else") from error
    finally:
        draft.unlink(missing_ok=True)
    raise CseError(f"--save-best: {file} would not be the recipe that was tried", "write it beside the recipe")


def _parents(base: LoadedRecipe, file: Path) -> list[str]:
    """Return what `extends` may say: the bare name where it means the same file from there, then the path."""
    named = find_parent(base.name, file.absolute())
    path = os.path.relpath(base.path.resolve(), file.absolute().parent.resolve())
    same = named is not None and named.resolve() == base.path.resolve()
    return [base.name, path] if same else [path]


def _text(parent: str, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> str:
    seeds = f"{'seed' if len(search.seeds) == 1 else 'mean of seeds'} {', '.join(map(str, search.seeds))}"
    steps = f", {search.steps} steps" if search.steps else ""
    own = "" if search.own is None else f"; the recipe's own values: {search.own.score:.2f}"
    about = verdict(search)
    sentences = f"{search.metric} {best.score:.2f} ({seeds}{steps}){own}.", f"{about[:1].upper()}{about[1:]}."
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    comment = [
        f"{_MADE_BY}{search.study}, trial {best.number} of {len(search.trials)}, {day}.",
        *(line for sentence in sentences for line in wrap.wrap(sentence)),
    ]
    paper = ["paper"] if tuned.base.recipe.paper is not None else []  # other values than the printed row's
    removed = [*paper, *tuned.unset]
    head = {"extends": parent, **({"remove": removed} if removed else {})}
    tables = {**head, "title": f"{tuned.base.recipe.title}, tuned", **_changed_tables(tuned)}
    return "\n".join(comment) + "\n" + tomlkit.dumps(tables)


def _changed_tables(tuned: TunedRecipe) -> dict[str, Any]:
    """Return what the values change in the recipe's tables; arrays whole, as `extends` replaces them."""
    changes = parse(tuned.changes, tuned.unset)
    tables, paths = apply(tuned.base.tables, changes)
    changed: dict[str, Any] = {}
    for path, change in zip(paths, changes, strict=True):
        if change.unset:
            continue
        value, target = tables, changed
        *tail, last = _keys_to_array(path)
        for key in tail:
            value, target = value[key], target.setdefault(key, {})
        target[last] = value[last]
    if "file" in changed.get("data", {}):
        file = tuned.load().recipe.data.file  # relative to this folder, not to that of the file written
        changed["data"]["file"] = list(file) if isinstance(file, tuple) else file
    return changed


def _keys_to_array(path: Sequence[str | int]) -> list[str]:
    """Return the keys of a path up to the first array it goes into."""
    end = next((place for place, key in enumerate(path) if isinstance(key, int)), len(path))
    return [str(key) for key in path[:end]]
