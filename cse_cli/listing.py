"""What `cse list` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.completion import KINDS
from cse_cli.describe import brief, broken_plugins, entries
from cse_cli.recipe.find import all_recipes
from cse_cli.recipe.merge import chain, merged
from registry.errors import CseError, UnknownNameError, suggestion

RECIPES = "recipes"


@dataclass(frozen=True)
class Listing:
    """Components by kind, and recipes where they were asked for."""

    components: dict[str, list[dict[str, Any]]]
    recipes: list[dict[str, Any]] | None
    broken: dict[str, str]

    def document(self) -> dict[str, Any]:
        """Return the listing as JSON writes it."""
        recipes = {} if self.recipes is None else {RECIPES: self.recipes}
        return {**self.components, **recipes, "broken_plugins": self.broken}


def listing(kind: str | None = None) -> Listing:
    """Return all components and recipes, or those of one kind.

    Raises:
        UnknownNameError: There is no such kind; a singular is suggested its plural.
    """
    known = (*KINDS, RECIPES)
    if kind not in (None, *known):
        hint = suggestion(str(kind), known)
        raise UnknownNameError(f"unknown kind '{kind}'.{hint}", f"`cse list` takes {', '.join(known)}, or nothing")
    wanted = [name for name in KINDS if kind in (None, name)]
    components = {name: [brief(entry) for entry in entries(name)] for name in wanted}
    recipes = recipe_lines() if kind in (None, RECIPES) else None
    return Listing(components, recipes, broken_plugins() if wanted else {})


def recipe_lines() -> list[dict[str, Any]]:
    """Return name, title and paper row of every recipe known by name; broken ones are listed too."""
    return [_line(name, path) for name, path in all_recipes().items()]


def _line(name: str, path: Path) -> dict[str, Any]:
    try:
        tables = merged(chain(path))
    except CseError:
        tables = {}
    paper = tables.get("paper")
    parts = [str(paper.get(key, "")) for key in ("key", "table", "row")] if isinstance(paper, dict) else []
    title = tables.get("title", "(not valid: see `cse check`)" if not tables else "")
    return {"name": name, "title": str(title), "paper": " · ".join(parts) or None, "path": str(path)}
