"""`cse cp`: write a copy of a recipe to a new file."""

from __future__ import annotations

import os
from pathlib import Path

import tomlkit

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe
from registry.errors import CseError


def write_copy(name_or_path: str, target: Path) -> None:
    """Write a recipe to a new file that loads to the same experiment."""
    loaded = load(name_or_path)
    if target.is_dir():
        action = f"cse cp {name_or_path} {target / 'my.toml'}"
        raise CseError(f"'{target}' is a directory", action, code="copy.is_directory")
    if target.suffix != ".toml":
        message = f"'{target}' does not end in .toml"
        raise CseError(message, f"cse cp {name_or_path} {target}.toml", code="copy.wrong_suffix")
    if target.exists():
        raise CseError(f"'{target}' already exists", "choose another name", code="copy.exists")
    if not target.parent.is_dir():
        message = f"directory '{target.parent}' does not exist"
        raise CseError(message, f"mkdir -p {target.parent}", code="copy.missing_directory")
    draft = target.with_name(f".{target.stem}.draft.toml")
    try:
        draft.write_text(copied_text(loaded, target.parent), encoding="utf-8")
        if load(str(draft)).recipe.hash() != loaded.recipe.hash():
            message = f"a copy of '{loaded.name}' at '{target}' would not be the same experiment"
            raise CseError(message, f"write a file with `extends = {loaded.name!r}`", code="copy.not_the_same")
        draft.rename(target)
    except OSError as error:
        message = f"cannot write '{target}': {error.strerror}"
        raise CseError(message, "choose a directory with write permission", code="copy.not_writable") from error
    finally:
        draft.unlink(missing_ok=True)


def copied_text(loaded: LoadedRecipe, directory: Path) -> str:
    """Return the text of a copy in `directory`.

    It is the text of the recipe's file if this extends no other. Otherwise it contains the merged tables, without
    comments and defaults. Paths of data files are relative to `directory`.
    """
    text = loaded.text
    if len(loaded.origins.sources) > 1:
        about = f"# A copy of {loaded.name} with everything it inherits. For its comments: cse show {loaded.name}\n"
        text = about + to_toml(
            {key: loaded.tables[key] for key in ("schema", *Recipe.model_fields) if key in loaded.tables}
        )
    file = loaded.tables["data"].get("file")
    moved = [
        os.path.relpath(path.absolute(), directory.absolute())
        if (path := loaded.origins.directory(("data", "file")) / each).exists()
        else each
        for each in ([file] if isinstance(file, str) else file or ())
    ]
    if moved in ([], [file], file):
        return text
    document = tomlkit.parse(text)
    document["data"]["file"] = moved[0] if isinstance(file, str) else moved
    return tomlkit.dumps(document)
