"""The values found, as a recipe: it extends the one they were found for, and says where they came from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from cse_cli.recipe.files import find_parent
from cse_cli.recipe.load import LoadedRecipe, apply, load, parse
from cse_cli.tuning.results import Search, Trial, verdict
from registry.errors import CseError

_MADE_BY = "# Found by `cse tune`: study "
_WIDTH = 110


@dataclass(frozen=True)
class Found:
    """A recipe with found values.

    Args:
        base: The recipe as its file has it.
        changes: `--set` texts: those of every trial, then the values found.
        unset: `--unset` keys of every trial.
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


def demand_room(file: Path, study: str) -> None:
    """Refuse a file that holds something else, before hours are spent on what is to be written there.

    Raises:
        CseError: It is there and not from this study, or its folder is missing.
    """
    if file.suffix != ".toml":
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"--save-best {file.with_suffix('.toml')}")
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


def save(file: Path, found: Found, search: Search, best: Trial, day: str) -> None:
    """Write the recipe; nothing is left behind where it would not be the same as what was tried.

    Args:
        file: Where to.
        found: What to write.
        search: Where it came from.
        best: The trial that had these values.
        day: When, in ISO form.

    Raises:
        CseError: The file cannot be written.
    """
    demand_room(file, search.study)
    wanted = found.load().recipe
    for parent in _parents(found.base, file):
        draft = file.with_name(f".{file.stem}.draft.toml")
        try:
            draft.write_text(_text(parent, found, search, best, day), encoding="utf-8")
            if load(str(draft)).recipe.hash() == wanted.hash():
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


def _text(parent: str, found: Found, search: Search, best: Trial, day: str) -> str:
    document = "\n".join(_comment(search, best, day)) + "\n"
    head: dict[str, Any] = {"extends": parent}
    paper = ["paper"] if found.base.recipe.paper is not None else []  # other values than the printed row's
    if removed := [*paper, *found.unset]:
        head["remove"] = removed
    title = f"{found.base.recipe.title}, tuned"
    return document + tomlkit.dumps({**head, "title": title, **changed(found)})


def _comment(search: Search, best: Trial, day: str) -> list[str]:
    seeds = "seed" if len(search.seeds) == 1 else "mean of seeds"
    sentence = verdict(search)
    return [
        f"{_MADE_BY}{search.study}, trial {best.number} of {len(search.trials)}, {day}.",
        *_wrapped(f"{search.metric} {best.score:.2f} ({seeds} {', '.join(map(str, search.seeds))}"
                  f"{f', {search.steps} steps' if search.steps else ''}){_own(search)}."),
        *_wrapped(f"{sentence[:1].upper()}{sentence[1:]}."),
    ]  # fmt: skip


def _own(search: Search) -> str:
    own = search.own
    return "" if own is None or own.score is None else f"; the recipe's own values: {own.score:.2f}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def changed(found: Found) -> dict[str, Any]:
    """Return what the values change in the recipe's tables; of an array, which `extends` replaces, all."""
    tables, paths = apply(found.base.tables, parse(found.changes, found.unset))
    wanted: dict[str, Any] = {}
    for path, change in zip(paths, parse(found.changes, found.unset), strict=True):
        if change.unset:
            continue
        keys = [
            str(key) for key in path[: next((at for at, key in enumerate(path) if isinstance(key, int)), len(path))]
        ]
        _put(wanted, keys, _value(tables, keys))
    if "file" in wanted.get("data", {}):
        file = found.load().recipe.data.file  # counts from here, not from where it is written
        wanted["data"]["file"] = list(file) if isinstance(file, tuple) else file
    return wanted


def _value(tables: Mapping[str, Any], keys: Sequence[str]) -> Any:
    value: Any = tables
    for key in keys:
        value = value[key]
    return value


def _put(tables: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        tables = tables.setdefault(key, {})
    tables[keys[-1]] = value
