"""`cse cp`: a recipe written to a file of one's own, to start from."""

from __future__ import annotations

import os
from pathlib import Path

import tomlkit

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe
from registry.errors import CseError


def write_copy(name_or_path: str, target: Path) -> None:
    """Write a recipe to a new file that loads to the same experiment; nothing is left behind where it would not.

    Raises:
        CseError: The recipe is unknown or not valid, or the file exists or cannot be written.
    """
    loaded = load(name_or_path)
    _check_target(name_or_path, target)
    draft = target.with_name(f".{target.stem}.draft.toml")
    try:
        draft.write_text(copied_text(loaded, target.parent), encoding="utf-8")
        if load(str(draft)).recipe.hash() != loaded.recipe.hash():
            message = f"a copy of {loaded.name} at {target} would not be the same experiment"
            raise CseError(message, f"write a file with `extends = {loaded.name!r}`")
        draft.rename(target)
    except OSError as error:
        raise CseError(f"{target} cannot be written: {error.strerror}", "choose a folder that is yours") from error
    finally:
        draft.unlink(missing_ok=True)


def _check_target(name: str, target: Path) -> None:
    if target.is_dir():
        raise CseError(f"{target} is a folder", f"cse cp {name} {target / 'my.toml'}")
    if target.suffix != ".toml":
        raise CseError(f"'{target}' does not end in .toml, as a recipe's file does", f"cse cp {name} {target}.toml")
    if target.exists():
        raise CseError(f"{target} exists already", "choose another name, or move it away")
    if not target.parent.is_dir():
        raise CseError(f"there is no folder {target.parent}", "make it, or write somewhere else")


def copied_text(loaded: LoadedRecipe, folder: Path) -> str:
    """Return what a copy in `folder` says.

    The text as it stands where the recipe inherits nothing; else all that its files say together, without their
    comments and without defaults. Paths that count from the recipe's folder are written anew.
    """
    if len(loaded.origins.sources) == 1:
        text = loaded.text
    else:
        remark = f"all that it inherits is written in; its comments: cse show {loaded.name}"
        ordered = {key: loaded.tables[key] for key in ("schema", *Recipe.model_fields) if key in loaded.tables}
        text = f"# A copy of {loaded.name}: {remark}\n{to_toml(ordered)}"
    file = loaded.tables["data"].get("file")
    moved = [_moved(each, loaded, folder) for each in ([file] if isinstance(file, str) else file or ())]
    if moved in ([], [file], file):
        return text
    document = tomlkit.parse(text)
    document["data"]["file"] = moved[0] if isinstance(file, str) else moved
    return tomlkit.dumps(document)


def _moved(file: str, loaded: LoadedRecipe, folder: Path) -> str:
    """Return a path of data as a recipe in `folder` writes it."""
    place = loaded.origins.folder(("data", "file")) / file
    return os.path.relpath(place.absolute(), folder.absolute()) if place.exists() else file
