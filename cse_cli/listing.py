"""What `cse list` shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.completion import KINDS
from cse_cli.describe import brief, broken_plugins, entries
from cse_cli.recipe.find import all_recipes
from cse_cli.recipe.merge import chain, merged
from cse_cli.recipe.titles import study_title
from cse_cli.study.load import all_studies, outline
from registry.errors import CseError, UnknownNameError, suggestion

RECIPES = "recipes"
STUDIES = "studies"


@dataclass(frozen=True)
class Listing:
    """Components by kind, and recipes and studies where they were asked for."""

    components: dict[str, list[dict[str, Any]]]
    recipes: list[dict[str, Any]] | None
    studies: list[dict[str, Any]] | None
    broken: dict[str, str]

    def document(self) -> dict[str, Any]:
        """Return the listing as JSON writes it."""
        files = {RECIPES: self.recipes, STUDIES: self.studies}
        asked = {kind: lines for kind, lines in files.items() if lines is not None}
        return {**self.components, **asked, "broken_plugins": self.broken}


def listing(kind: str | None = None) -> Listing:
    """Return all components, recipes and studies, or those of one kind.

    Raises:
        UnknownNameError: There is no such kind; a singular is suggested its plural.
    """
    known = (*KINDS, RECIPES, STUDIES)
    if kind not in (None, *known):
        hint = suggestion(str(kind), known)
        raise UnknownNameError(f"unknown kind '{kind}'.{hint}", f"`cse list` takes {', '.join(known)}, or nothing")
    wanted = [name for name in KINDS if kind in (None, name)]
    components = {name: [brief(entry) for entry in entries(name)] for name in wanted}
    recipes = recipe_lines() if kind in (None, RECIPES) else None
    studies = study_lines() if kind in (None, STUDIES) else None
    return Listing(components, recipes, studies, broken_plugins() if wanted else {})


def recipe_lines() -> list[dict[str, Any]]:
    """Return name, title and paper row of every recipe known by name; broken ones are listed too."""
    return [_line(name, path) for name, path in all_recipes().items()]


def study_lines() -> list[dict[str, Any]]:
    """Return name, title, table and size of every study known by name; broken ones are listed too."""
    return [_study_line(name, path) for name, path in all_studies().items()]


def _study_line(name: str, path: Path) -> dict[str, Any]:
    try:
        study = outline(path)
    except CseError:
        title = f"{study_title(path)} (not valid: see `cse check`)".strip()
        return {"name": name, "title": title, "paper": None, "rows": 0, "seeds": [], "path": str(path)}
    rows = len(study.rows) or math.prod(len(found) for found in study.grid.values())
    about = {"name": name, "title": study.title, "paper": study.paper}
    return {**about, "rows": rows, "seeds": list(study.seed_list), "path": str(path)}


def _line(name: str, path: Path) -> dict[str, Any]:
    try:
        tables = merged(chain(path))
    except CseError:
        tables = {}
    paper = tables.get("paper")
    parts = [str(paper.get(key, "")) for key in ("key", "table", "row")] if isinstance(paper, dict) else []
    title = tables.get("title", "(not valid: see `cse check`)" if not tables else "")
    return {"name": name, "title": str(title), "paper": " · ".join(parts) or None, "path": str(path)}
