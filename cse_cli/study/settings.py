"""What a recipe says at a dotted path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cse_cli.recipe.schema import Recipe


def setting(recipe: Recipe, path: str) -> Any:
    """Return the value at a dotted path, a component's name included; None where nothing stands.

    A component in a list goes by its place or by its name, as in `--set`.
    """
    found: Any = recipe.resolved()
    for key in path.split("."):
        if isinstance(found, list | tuple):
            found = {str(place): part for place, part in enumerate(found)} | _by_name(found)
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _by_name(parts: Sequence[Any]) -> dict[str, Any]:
    return {str(part["name"]): part for part in parts if isinstance(part, Mapping) and "name" in part}
