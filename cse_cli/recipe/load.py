"""A recipe's name or path → a complete recipe, and where each of its values came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.recipe.find import find, name_of
from cse_cli.recipe.merge import chain, merged
from cse_cli.recipe.origins import Origins
from cse_cli.recipe.overrides import Override, apply, assigned, parse
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.sources import Source
from cse_cli.recipe.validate import validate


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe and where it came from.

    Args:
        recipe: Complete and validated.
        name: Bare name where it has one, such as "mini/ifcl_en"; else the file's stem.
        text: The file as written.
        tables: Everything inherited and overridden joined, defaults not yet written in.
    """

    recipe: Recipe
    name: str
    path: Path
    text: str
    tables: dict[str, Any]
    origins: Origins


@dataclass(frozen=True)
class WrittenRecipe:
    """A recipe's files, read and joined but not validated: what several settings of it have in common."""

    name: str
    path: Path
    sources: tuple[Source, ...]
    tables: dict[str, Any]


def read(name_or_path: str) -> WrittenRecipe:
    """Find, read and merge a recipe.

    Raises:
        UnknownNameError: No recipe of that name.
        RecipeError: A file cannot be read.
    """
    path = find(name_or_path)
    sources = chain(path)
    return WrittenRecipe(name_of(path), path, sources, merged(sources))


def load(name_or_path: str, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> LoadedRecipe:
    """Find, read, merge and validate a recipe. Nothing is built, fetched or written.

    Args:
        name_or_path: A path that ends in `.toml`, or a bare name such as "ifcl_en".
        overrides: `dotted.key=value` texts, as `--set` takes them.
        unset: Dotted keys to take out, as `--unset` takes them.

    Raises:
        UnknownNameError: No recipe of that name.
        RecipeError: It cannot be read or is not valid; all reasons, each with its place.
    """
    changes = parse(overrides, unset)
    return _complete(read(name_or_path), changes)


def changed(written: WrittenRecipe, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> LoadedRecipe:
    """Validate a recipe that has been read, as `load` does.

    Raises:
        RecipeError: It is not valid with these settings.
    """
    return _complete(written, parse(overrides, unset))


def _complete(written: WrittenRecipe, changes: Sequence[Override]) -> LoadedRecipe:
    sources = written.sources
    tables, where = apply(written.tables, changes)
    labels = [(keys, change.label) for keys, change in zip(where, changes, strict=True) if not change.unset]
    origins = Origins(sources, tuple(labels))
    return LoadedRecipe(validate(tables, origins), written.name, written.path, sources[0].text, tables, origins)


def with_value(loaded: LoadedRecipe, path: str, value: Any) -> LoadedRecipe:
    """Return the recipe with the value at a dotted path changed, validated again as a whole.

    Raises:
        RecipeError: The value does not fit, or the path leads nowhere.
    """
    change: Override = assigned(path, value)
    tables, where = apply(loaded.tables, [change])
    origins = Origins(loaded.origins.sources, (*loaded.origins.overrides, (where[0], change.label)))
    return LoadedRecipe(validate(tables, origins), loaded.name, loaded.path, loaded.text, tables, origins)
