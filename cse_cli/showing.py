"""What `cse show` shows: components by name, recipes as text or resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cse_cli.describe import entries, full
from cse_cli.recipe.find import all_recipes, find
from cse_cli.recipe.load import load
from cse_cli.recipe.sources import read_source
from cse_cli.recipe.toml import to_toml
from registry.errors import UnknownNameError, suggestion


def component_documents(name: str) -> list[dict[str, Any]]:
    """Return the components of that name, or of "kind/name"; none where only a recipe can be meant.

    Raises:
        UnknownNameError: Neither a component nor a recipe has that name.
    """
    kind, slash, bare = name.rpartition("/")
    found = [full(entry) for entry in entries() if entry.name == bare and (not slash or kind == entry.kind)]
    if found or name.endswith(".toml") or name in all_recipes():
        return found
    known = [entry.name for entry in entries()]
    raise UnknownNameError(
        f"no component and no recipe is called '{name}'.{suggestion(name, [*known, *all_recipes()])}",
        "`cse list` shows all of them; the path of a recipe ends in .toml",
    )


def recipe_text(name: str, overrides: Sequence[str], unset: Sequence[str], *, resolved: bool) -> str:
    """Return a recipe's text as written, or resolved with overrides.

    Raises:
        CseError: It is unknown or, where it must be resolved, not valid.
    """
    if resolved:
        return to_toml(load(name, overrides, unset).recipe.resolved())
    return read_source(find(name)).text


def recipe_document(name: str, overrides: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return a valid recipe as JSON writes it.

    Raises:
        CseError: It is unknown or not valid.
    """
    loaded = load(name, overrides, unset)
    files = [str(source.path) for source in loaded.origins.sources]
    return {
        "name": loaded.name, "path": str(loaded.path), "extends": files[1:], "hash": loaded.recipe.hash(),
        "text": loaded.text, "recipe": loaded.recipe.resolved(),
    }  # fmt: skip
