"""What `cse show` prints of components, recipes and data sets, as plain data for tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.catalog import component_facts, recipe_facts
from cse_cli.recipe.errors import read_source
from cse_cli.recipe.files import all_recipes, all_studies, find
from cse_cli.recipe.load import load, read
from registry import catalogue
from registry.errors import UnknownNameError, suggestion


def component_documents(name: str) -> list[dict[str, Any]]:
    """Return the components of that name, or of "kind/name"; none where only a recipe or a data set can be meant.

    Raises:
        UnknownNameError: No component, recipe or data set has that name.
    """
    kind, slash, bare = name.rpartition("/")
    documents = component_facts().every
    found = [about for about in documents if about["name"] == bare and (not slash or kind == about["kind"])]
    others = [*all_recipes(), *all_studies(), *catalogue.names()]
    if found or name.endswith(".toml") or name in others:
        return found
    known = [about["name"] for about in documents]
    raise UnknownNameError(
        f"no component, recipe or data set is called '{name}'.{suggestion(name, [*known, *others])}",
        "`cse list` and `cse data list` show all of them; the path of a recipe ends in .toml",
    )


def dataset_document(name: str) -> dict[str, Any] | None:
    """Return what the catalogue says of a data set, and where its splits are; None where there is none of that name."""
    if name not in catalogue.names() or name in all_recipes():
        return None
    about = catalogue.entry(name)
    splits = []
    for split, part in about.splits.items():
        state = catalogue.state(name, split)
        where = state.origin or ("fetchable" if state.sources else "missing")
        splits.append({"name": split, "rows": part.rows, "columns": about.columns_of(split), "where": where})
    kept = about.model_dump(include={"name", "title", "kind", "language", "licence", "citation", "url", "note"})
    return {**kept, "sources": [remote.where for remote in about.sources.values()], "splits": splits}


def recipe_text(name: str, overrides: Sequence[str], unset: Sequence[str], *, resolved: bool) -> str:
    """Return a recipe's text as written, or resolved with overrides.

    Raises:
        CseError: It is unknown or, where it must be resolved, not valid.
    """
    if resolved:
        return to_toml(_resolved(name, overrides, unset)[0])
    return read_source(find(name)).text


def recipe_document(name: str, overrides: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return a valid recipe as JSON writes it.

    Raises:
        CseError: It is unknown or not valid.
    """
    resolved, settings = _resolved(name, overrides, unset)
    written = read(name)
    files = [str(source.path) for source in written.origins.sources]
    return {
        "name": written.name, "path": str(written.path), "extends": files[1:], "hash": settings, "text": written.text,
        "recipe": resolved,
    }  # fmt: skip


def _resolved(name: str, overrides: Sequence[str], unset: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return a resolved recipe and its hash; components are imported only if that is necessary."""
    if not overrides and not unset and not (facts := recipe_facts(name)).error:
        return facts.resolved, facts.settings
    recipe = load(name, overrides, unset).recipe
    return recipe.resolved(), recipe.hash()
