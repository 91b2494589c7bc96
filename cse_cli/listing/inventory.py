"""What there is: components, recipes and studies as plain data for tables and JSON; what recipes need to run here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cse_cli.data.requirements import Availability, availability
from cse_cli.recipe.catalog import ComponentFacts, RecipeFacts, component_facts, recipe_facts
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.files import title as file_title
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import outline
from registry.errors import CseError, UnknownNameError, suggestion

RECIPES = "recipes"
STUDIES = "studies"
_BRIEF = ("kind", "name", "summary", "distribution", "levels", "file", "line")


@dataclass(frozen=True)
class Listing:
    """Components by kind, and recipes and studies where they are listed too."""

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
        title: What is wrong where it is not valid.
        paper: The printed row it answers.
        lacks: What it needs that is not on this machine; None where it is not valid.
    """

    name: str
    title: str
    paper: str | None
    path: Path
    lacks: tuple[Availability, ...] | None

    @property
    def state(self) -> str:
        """Whether it can run: "here" at once, "fetchable" after a download, "missing" data of one's own, "invalid"."""
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
        return {**about, "state": self.state, "needs": needs}


def listing(kind: str | None = None) -> Listing:
    """Return all components, recipes and studies, or those of one kind.

    Raises:
        UnknownNameError: There is no such kind; a singular is suggested its plural.
    """
    known = (*KINDS, RECIPES, STUDIES)
    if kind not in (None, *known):
        hint = suggestion(str(kind), known)
        raise UnknownNameError(f"unknown kind '{kind}'.{hint}", f"`cse list` takes {', '.join(known)}, or nothing")
    kinds = [name for name in KINDS if kind in (None, name)]
    facts = component_facts() if kinds else ComponentFacts({}, {})
    components = {name: [_brief(document) for document in facts.documents[name]] for name in kinds}
    recipes = recipe_lines(all_recipes()) if kind in (None, RECIPES) else None
    studies = [_study_line(name, path) for name, path in all_studies().items()] if kind in (None, STUDIES) else None
    return Listing(components, recipes, studies, facts.broken)


def _brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line of a list of components."""
    return {key: document[key] for key in _BRIEF if key in document}


def recipe_lines(files: Mapping[str, Path]) -> list[RecipeLine]:
    """Return a line a recipe, name → file; broken ones are listed too. Nothing goes over the network."""
    here = Machine()
    return [_recipe_line(name, path, here) for name, path in files.items()]


class Machine:
    """What is on this machine; each thing that several recipes need is looked for once."""

    def __init__(self) -> None:
        self._known: dict[Requirement, Availability] = {}

    def lacks(self, recipe: Recipe) -> tuple[Availability, ...]:
        """Return what a recipe needs that is not here. Nothing goes over the network."""
        return self.missing(requirements(recipe))

    def missing(self, wanted: Iterable[Requirement]) -> tuple[Availability, ...]:
        """Return those requirements that are not met. Nothing goes over the network."""
        return tuple(one for one in map(self._looked_up, wanted) if one.state != "here")

    def _looked_up(self, wanted: Requirement) -> Availability:
        key = replace(wanted, wanted_by=wanted.wanted_by[:1])  # the first tells what kind of file it is
        if key not in self._known:
            self._known[key] = availability(key)
        return self._known[key]


def _recipe_line(name: str, path: Path, here: Machine) -> RecipeLine:
    """Return name, title, paper's row and what is lacking."""
    facts = recipe_facts(str(path))
    if facts.error:
        return RecipeLine(name, f"{facts.title} (not valid: see `cse check`)".strip(), None, path, None)
    return RecipeLine(name, facts.title, _paper(facts), path, here.missing(facts.requirements))


def _paper(facts: RecipeFacts) -> str | None:
    paper = facts.paper
    return None if paper is None else f"{paper.key} · {paper.table} · {paper.row}"


def _study_line(name: str, path: Path) -> dict[str, Any]:
    """Return name, title, table and size of a study; broken ones are listed too."""
    try:
        study = outline(path)
    except CseError:
        title = f"{file_title(path)} (not valid: see `cse check`)".strip()
        return {"name": name, "title": title, "paper": None, "rows": 0, "seeds": [], "path": str(path)}
    rows = len(study.rows) or math.prod(len(found) for found in study.grid.values())
    about = {"name": name, "title": study.title, "paper": study.paper}
    return {**about, "rows": rows, "seeds": list(study.seed_list), "path": str(path)}
