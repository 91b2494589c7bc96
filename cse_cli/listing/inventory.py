"""Components, recipes and studies as plain data for tables and JSON. Only what is listed in full is imported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cse_cli.data.requirements import availability
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
INVALID = "{} (not valid: see `cse check`)"
Line = dict[str, Any]
"""Facts about a component, a recipe or a study, as JSON writes them."""


def overview() -> dict[str, list[Line]]:
    """Return kind → names of all components, recipes and studies. Reads no file of the latter two."""
    recipes = [{"name": name, "path": str(path)} for name, path in all_recipes().items()]
    return {**_components(KINDS), RECIPES: recipes, STUDIES: [{"name": name} for name in all_studies()]}


def listing(kind: str | None = None, *, in_full: bool = False) -> dict[str, list[Line]]:
    """Return kind → components, recipes or studies, for all kinds or one. `in_full` loads the recipes."""
    known = (*KINDS, RECIPES, STUDIES)
    if kind is not None and kind not in known:
        raise UnknownNameError(
            f"unknown kind '{kind}'.{suggestion(kind, known)}", f"use one of {', '.join(known)}",
            code="list.unknown_kind",
        )  # fmt: skip
    found = _components(KINDS if kind is None else {kind} & {*KINDS})
    if kind in (None, RECIPES):
        found[RECIPES] = recipe_lines(all_recipes(), in_full=in_full)
    if kind in (None, STUDIES):
        found[STUDIES] = [_study_line(name, path) for name, path in all_studies().items()]
    return found


def broken_plugins() -> dict[str, str]:
    """Return the plug-ins that cannot be imported, with the reason."""
    return {plugin: why for registry in REGISTRIES for plugin, why in registry.broken.items()}


def _components(kinds: Iterable[str]) -> dict[str, list[Line]]:
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


def recipe_lines(files: Mapping[str, Path], *, in_full: bool) -> list[Line]:
    """Return a line for each recipe, without network. `in_full` loads them to know paper, checks, state and needs.

    The state is "here" (ready to run), "fetchable" (after a download), "missing" (needs your data) or "invalid".
    """
    look_up, lines = cache(availability), []
    for name, path in files.items():
        line: Line = {"name": name, "title": file_title(path), "path": str(path)}
        lines.append(line)
        if not in_full:
            continue
        line |= {"paper": None, "checks": "", "state": "invalid", "needs": []}
        try:
            recipe = load(str(path)).recipe
        except CseError:
            line["title"] = INVALID.format(line["title"]).strip()
            continue
        # The first path that contains a name determines the kind of file.
        needed = (look_up(replace(one, wanted_by=one.wanted_by[:1])) for one in requirements(recipe))
        lacks = [one for one in needed if one.state != "here"]
        line["state"] = next((s for s in ("missing", "fetchable") if s in {one.state for one in lacks}), "here")
        line["needs"] = [
            {"kind": one.requirement.kind, "name": one.requirement.name, "split": one.requirement.split,
             "state": one.state, "bytes": one.bytes, "problem": one.problem, "action": one.action}
            for one in lacks
        ]  # fmt: skip
        line["title"] = recipe.title
        if recipe.paper is not None:
            line["paper"] = f"{recipe.paper.key} · {recipe.paper.table} · {recipe.paper.row}"
        if (shipped := shipped_name(path)) is not None:
            line["checks"] = badge_of(shipped).line
    return lines


def small_version(name: str) -> str | None:
    """Return the small version of a recipe if it is ready to run, or None. Uses no network."""
    small = f"mini/{name}"
    if (file := bare_file(small, study=False)) is None:
        return None
    return small if recipe_lines({small: file}, in_full=True)[0]["state"] == "here" else None


def _study_line(name: str, path: Path) -> Line:
    """Return name, title, table and size of a study, which may be not valid."""
    try:
        study = outline(path)
    except CseError:
        title = INVALID.format(file_title(path)).strip()
        return {"name": name, "title": title, "paper": None, "rows": 0, "seeds": [], "path": str(path)}
    rows = len(list(study.placed_rows())) or math.prod(len(found) for found in study.grid.values())
    about = {"name": name, "title": study.title, "paper": study.paper}
    return {**about, "rows": rows, "seeds": list(study.seed_list), "path": str(path)}
