"""Components, recipes and studies as plain data for tables and JSON. Only what is listed in full is imported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from cse_cli.data.requirements import Availability, availability
from cse_cli.recipe.completion import KINDS, kinds_with_plugins, summaries
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, shipped_name
from cse_cli.recipe.files import title as file_title
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.study import outline
from registry import REGISTRIES
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import badge_of

RECIPES = "recipes"
STUDIES = "studies"


@dataclass(frozen=True)
class Listing:
    """Components by kind, recipes and studies. None stands for a kind that is not listed.

    `broken` has the plug-ins that cannot be imported, with the reason.
    """

    components: dict[str, list[dict[str, Any]]]
    recipes: list[RecipeLine] | None = None
    studies: list[dict[str, Any]] | None = None
    broken: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the listing as JSON writes it."""
        recipes = {} if self.recipes is None else {RECIPES: [line.document() for line in self.recipes]}
        studies = {} if self.studies is None else {STUDIES: self.studies}
        return {**self.components, **recipes, **studies, "broken_plugins": self.broken}


@dataclass(frozen=True)
class RecipeLine:
    """One recipe.

    Args:
        state: "here" (ready to run), "fetchable" (after a download), "missing" (needs your data) or "invalid". Empty if
            the recipe was not loaded. Then the following are empty, too.
        paper: Reported row that it reproduces.
        lacks: Missing requirements.
        checks: Badge in one line. Empty for a recipe without checks and for your recipes.
    """

    name: str
    title: str
    path: Path
    state: str = ""
    paper: str | None = None
    lacks: tuple[Availability, ...] = ()
    checks: str = ""

    def document(self) -> dict[str, Any]:
        """Return the line as JSON writes it."""
        about: dict[str, Any] = {"name": self.name, "title": self.title, "path": str(self.path)}
        if not self.state:
            return about
        needs = [
            {"kind": one.requirement.kind, "name": one.requirement.name, "split": one.requirement.split,
             "state": one.state, "bytes": one.bytes, "problem": one.problem, "action": one.action}
            for one in self.lacks
        ]  # fmt: skip
        return {**about, "paper": self.paper, "checks": self.checks, "state": self.state, "needs": needs}


def overview() -> Listing:
    """Return the names of all components, recipes and studies, without reading the files of the latter two."""
    recipes = [RecipeLine(name, "", path) for name, path in all_recipes().items()]
    return Listing(_components(KINDS), recipes, [{"name": name} for name in all_studies()], _broken())


def listing(kind: str | None = None, *, in_full: bool = False) -> Listing:
    """Return all components, recipes and studies, or those of one kind. `in_full` loads the recipes."""
    known = (*KINDS, RECIPES, STUDIES)
    if kind is not None and kind not in known:
        raise UnknownNameError(
            f"unknown kind '{kind}'.{suggestion(kind, known)}", f"use one of {', '.join(known)}",
            code="list.unknown_kind",
        )  # fmt: skip
    kinds = known if kind is None else (kind,)
    recipes = recipe_lines(all_recipes(), in_full=in_full) if RECIPES in kinds else None
    studies = [_study_line(name, path) for name, path in all_studies().items()] if STUDIES in kinds else None
    return Listing(_components([one for one in KINDS if one in kinds]), recipes, studies, _broken())


def _broken() -> dict[str, str]:
    return {plugin: why for registry in REGISTRIES for plugin, why in registry.broken.items()}


def _components(kinds: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the components of each kind from the files of this package. With plug-ins, from their classes."""
    extended, components = kinds_with_plugins(), {}
    for kind in kinds:
        found = [(name, summary, "cse") for name, summary in summaries(kind).items()]
        if kind in extended:
            registry = next(one for one in REGISTRIES if one.kind == kind)
            found = [(entry.name, entry.summary, entry.distribution) for entry in registry]
        components[kind] = [
            {"kind": kind, "name": name, "summary": text, "distribution": origin} for name, text, origin in found
        ]
    return components


def recipe_lines(files: Mapping[str, Path], *, in_full: bool) -> list[RecipeLine]:
    """Return a line for each recipe, without network. `in_full` loads them to know state, paper and needs."""
    if not in_full:
        return [RecipeLine(name, file_title(path), path) for name, path in files.items()]
    look_up, lines = cache(availability), []
    for name, path in files.items():
        try:
            recipe = load(str(path)).recipe
        except CseError:
            title = f"{file_title(path)} (not valid: see `cse check`)".strip()
            lines.append(RecipeLine(name, title, path, "invalid"))
            continue
        # The first path that contains a name determines the kind of file.
        needed = (look_up(replace(one, wanted_by=one.wanted_by[:1])) for one in requirements(recipe))
        lacks = tuple(one for one in needed if one.state != "here")
        state = next((s for s in ("missing", "fetchable") if s in {one.state for one in lacks}), "here")
        paper = None if recipe.paper is None else f"{recipe.paper.key} · {recipe.paper.table} · {recipe.paper.row}"
        shipped = shipped_name(path)
        checks = "" if shipped is None else badge_of(shipped).line
        lines.append(RecipeLine(name, recipe.title, path, state, paper, lacks, checks))
    return lines


def small_version(name: str) -> str | None:
    """Return the small version of a recipe if it is ready to run, or None. Uses no network."""
    small = f"mini/{name}"
    if (file := bare_file(small, study=False)) is None:
        return None
    return small if recipe_lines({small: file}, in_full=True)[0].state == "here" else None


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
