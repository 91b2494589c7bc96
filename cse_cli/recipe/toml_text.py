"""A complete recipe as TOML text."""

from __future__ import annotations

from typing import Any

from cse_cli.recipe.schema import Recipe


def to_toml(recipe: Recipe) -> str:
    """Return the recipe with every default written in and nothing inherited; it validates to the same hash."""
    import tomlkit

    document = tomlkit.document()
    for key, value in recipe.resolved().items():
        if value not in ({}, []):
            document[key] = _multiline(value) if isinstance(value, dict) else value
    return tomlkit.dumps(document)


def _multiline(table: dict[str, Any]) -> dict[str, Any]:
    return table
