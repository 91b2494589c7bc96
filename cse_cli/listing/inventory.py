"""Components, recipes and studies as plain data for tables and JSON, with the missing requirements of recipes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cse_cli.data.requirements import Availability, availability
from cse_cli.recipe.catalog import ComponentFacts, RecipeFacts, component_facts, recipe_facts
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, shipped_name
from cse_cli.recipe.files import title as file_title
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import outline
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import badge_of

RECIPES = "recipes"
STUDIES = "studies"
_BRIEF = ("kind", "name", "summary", "distribution", "levels", "file", "line")


@dataclass(frozen=True)
class Listing:
    """Components by kind, recipes and studies. None stands for a kind that is not listed."""

    components: dict[str, list[dict[str, Any]]]
    recipes: list[RecipeLine] | None
    studies: list[dict[str, Any]] | None
    broken: dict[str, str]

    def document(self) -> dict[str, Any]:
        """Return the listing as JSON writes it."""
        recipes = {} if self.recipes is None else {RECIPES: [line.document() for line in self.recipes]}
        studies = {} if self.studies is None else {STUDIES: self.studies}
        return {**self.components, **recipes, **studies, "broken_plugins": self.broken}


@dataclass(frozen=True)
class RecipeLine:
    """One recipe.

    Args:
        name: Name of the recipe.
        title: Title, with a remark if the recipe is not valid.
        paper: Reported row that it reproduces.
        path: File of the recipe.
        lacks: Missing requirements, or None if the recipe is not valid.
        checks: Badge in one line. Empty for a recipe without checks and for your recipes.
    """

    name: str
    title: str
    paper: str | None
    path: Path
    lacks: tuple[Availability, ...] | None
    checks: str = ""

    @property
    def state(self) -> str:
        """State: "here" (ready to run), "fetchable" (after a download), "missing" (needs your data) or "invalid"."""
        if self.lacks is None:
            return "invalid"
        states = {one.state for one in self.lacks}
        return next((state for state in ("missing", "fetchable") if state in states), "here")

    def document(self) -> dict[str, Any]:
        """Return the line as JSON writes it."""
        needs = [
            {"kind": one.requirement.kind, "name": one.requirement.name, "split": one.requirement.split,
             "state": one.state, "bytes": one.bytes, "problem": one.problem, "action": one.action}
            for one in self.lacks or ()
        ]  # fmt: skip
        about = {"name": self.name, "title": self.title, "paper": self.paper, "path": str(self.path)}
        return {**about, "checks": self.checks, "state": self.state, "needs": needs}


def listing(kind: str | None = None) -> Listing:
    """Return all components, recipes and studies, or those of one kind.

    Raises:
        UnknownNameError: If the kind does not exist.
    """
    known = (*KINDS, RECIPES, STUDIES)
    if kind not in (None, *known):
        hint = suggestion(str(kind), known)
        raise UnknownNameError(
            f"unknown kind '{kind}'.{hint}", f"use one of {', '.join(known)}", code="list.unknown_kind"
        )
    kinds = [name for name in KINDS if kind in (None, name)]
    facts = component_facts() if kinds else ComponentFacts({}, {})
    components = {name: [_select_keys(document) for document in facts.documents[name]] for name in kinds}
    recipes = recipe_lines(all_recipes()) if kind in (None, RECIPES) else None
    studies = [_study_line(name, path) for name, path in all_studies().items()] if kind in (None, STUDIES) else None
    return Listing(components, recipes, studies, facts.broken)


def _select_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in _BRIEF if key in document}


def recipe_lines(files: Mapping[str, Path]) -> list[RecipeLine]:
    """Return a line for each recipe, including recipes that are not valid. Uses no network."""
    here = Machine()
    return [_recipe_line(name, path, here) for name, path in files.items()]


class Machine:
    """Requirements that are met on this machine. A requirement of several recipes is checked once."""

    def __init__(self) -> None:
        self._known: dict[Requirement, Availability] = {}

    def lacks(self, recipe: Recipe) -> tuple[Availability, ...]:
        """Return the missing requirements of a recipe. Uses no network."""
        return self.missing(requirements(recipe))

    def missing(self, required: Iterable[Requirement]) -> tuple[Availability, ...]:
        """Return the requirements that are not met. Uses no network."""
        return tuple(one for one in map(self._look_up, required) if one.state != "here")

    def _look_up(self, required: Requirement) -> Availability:
        key = replace(required, wanted_by=required.wanted_by[:1])  # the first one determines the kind of file
        if key not in self._known:
            self._known[key] = availability(key)
        return self._known[key]


def small_version(name: str) -> str | None:
    """Return the small version of a recipe if it is ready to run, or None. Uses no network."""
    small = f"mini/{name}"
    if (file := bare_file(small, study=False)) is None:
        return None
    return small if _recipe_line(small, file, Machine()).state == "here" else None


def _recipe_line(name: str, path: Path, here: Machine) -> RecipeLine:
    facts = recipe_facts(str(path))
    if facts.error:
        return RecipeLine(name, f"{facts.title} (not valid: see `cse check`)".strip(), None, path, None)
    shipped = shipped_name(path)
    checks = "" if shipped is None else badge_of(shipped).line
    return RecipeLine(name, facts.title, _paper(facts), path, here.missing(facts.requirements), checks)


def _paper(facts: RecipeFacts) -> str | None:
    paper = facts.paper
    return None if paper is None else f"{paper.key} · {paper.table} · {paper.row}"


def _study_line(name: str, path: Path) -> dict[str, Any]:
    """Return name, title, table and size of a study, which may be not valid."""
    try:
        study = outline(path)
    except CseError:
        title = f"{file_title(path)} (not valid: see `cse check`)".strip()
        return {"name": name, "title": title, "paper": None, "rows": 0, "seeds": [], "path": str(path)}
    rows = len(list(study.placed_rows())) or math.prod(len(found) for found in study.grid.values())
    about = {"name": name, "title": study.title, "paper": study.paper}
    return {**about, "rows": rows, "seeds": list(study.seed_list), "path": str(path)}
