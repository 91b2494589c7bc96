"""Content of `cse show` for components, recipes and data sets, as plain data for tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.completion import KINDS, kinds_with_plugins, summaries
from cse_cli.recipe.describe import full
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, find, shipped_name
from cse_cli.recipe.load import load, read
from cse_cli.recipe.sources import read_source
from registry import REGISTRIES
from registry.errors import UnknownNameError, suggestion
from registry.papers import Badge, badge_of
from registry.resources import catalog


def component_documents(name: str) -> list[dict[str, Any]]:
    """Return the components with a name or a "kind/name", or an empty list if a recipe or data set has this name.

    Only their modules are imported, and the plug-ins.

    Raises:
        UnknownNameError: If no component, recipe or data set has this name.
    """
    kind, _, bare = name.rpartition("/")
    asked, extended = [each for each in REGISTRIES if kind in ("", each.kind)], kinds_with_plugins()
    places = [each for each in asked if each.kind in extended or bare in summaries(each.kind)]
    found = [full(registry[bare]) for registry in places if bare in registry]
    others = [*all_recipes(), *all_studies(), *catalog.names()]
    if found or name.endswith(".toml") or name in others:
        return found
    known = [*(component for kind in KINDS for component in summaries(kind)), *others]
    raise UnknownNameError(
        f"no component, recipe or data set is called '{name}'.{suggestion(name, known)}",
        "`cse list` and `cse data list` show all names. The path of a recipe ends in .toml",
        code="show.unknown_name",
    )


def dataset_document(name: str) -> dict[str, Any] | None:
    """Return the catalog's entry of a data set with the location of its splits, or None if it is unknown."""
    if name not in catalog.names() or bare_file(name, study=False):
        return None
    about = catalog.entry(name)
    splits = []
    for split, part in about.splits.items():
        state = catalog.state(name, split)
        where = state.origin or ("fetchable" if state.sources else "missing")
        splits.append({"name": split, "rows": part.rows, "columns": about.columns_of(split), "where": where})
    kept = about.model_dump(include={"name", "title", "kind", "language", "license", "citation", "url", "note"})
    return {**kept, "sources": [remote.where for remote in about.sources.values()], "splits": splits}


def recipe_text(name: str, overrides: Sequence[str], unset: Sequence[str], *, resolved: bool) -> str:
    """Return the text of a recipe's file, or the resolved recipe with overrides.

    Raises:
        CseError: If the recipe is unknown, or is resolved and invalid.
    """
    if resolved:
        return to_toml(load(name, overrides, unset).recipe.resolved())
    return read_source(find(name)).text


def recipe_badge(name: str) -> Badge | None:
    """Return the badge of a recipe of this installation, or None for another file.

    Raises:
        CseError: If the recipe is unknown.
    """
    shipped = shipped_name(find(name))
    return None if shipped is None else badge_of(shipped)


def recipe_document(name: str, overrides: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return a valid recipe as JSON. A changed recipe has no badge.

    Raises:
        CseError: If the recipe is unknown or invalid.
    """
    recipe = load(name, overrides, unset).recipe
    written = read(name)
    files = [str(source.path) for source in written.origins.sources]
    badge = None if overrides or unset else recipe_badge(name)
    return {
        "name": written.name, "path": str(written.path), "extends": files[1:], "hash": recipe.hash(),
        "text": written.text, "recipe": recipe.resolved(), "badge": badge.document() if badge else None,
    }  # fmt: skip
