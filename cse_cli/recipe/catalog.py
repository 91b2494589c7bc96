"""Facts of recipes and components from a cache, so that commands which only read import no component and no torch.

The cache is in `cache()/catalog`: one file per recipe, one per study, and one for all components.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_cli.core.paths import cache
from cse_cli.recipe.cached import (
    Key,
    changed_since,
    entry_file,
    from_cache,
    is_unchanged,
    key_of,
    key_of_recipe,
    to_cache,
)
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import find, name_of, title
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Paper, Recipe
from registry.errors import CseError

if TYPE_CHECKING:
    from cse_cli.recipe.cells import Cell
    from cse_cli.recipe.study import Study


@dataclass(frozen=True)
class RecipeFacts:
    """What the file of a recipe means today.

    Args:
        path: Absolute path of the file.
        title: Title. Of a recipe that is not valid, the title in its own file.
        language: Language. Empty if the recipe is not valid.
        paper: Printed row that it answers.
        settings: `Recipe.hash()`. Empty if the recipe is not valid.
        resolved: `Recipe.resolved()`, with lists for tuples. Empty if the recipe is not valid.
        requirements: Models, data sets and files that it names, in its order.
        error: What is wrong, with every reason. Empty if the recipe is valid.
    """

    path: Path
    title: str
    language: str = ""
    paper: Paper | None = None
    settings: str = ""
    resolved: dict[str, Any] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()
    error: str = ""

    @property
    def name(self) -> str:
        """Bare name such as "mini/ifcl_en" if it has one, else the stem of its file."""
        return name_of(self.path)


def recipe_facts(name_or_path: str) -> RecipeFacts:
    """Return what a recipe's file means today, from the cache if nothing changed.

    Args:
        name_or_path: A path that ends in `.toml`, or a bare name such as "ifcl_en".

    Raises:
        UnknownNameError: No recipe has this name. A file that is missing or not valid is a fact with an `error`.
    """
    path = find(name_or_path).absolute()
    file = entry_file("recipes", path)
    return from_cache(file, lambda entry: _stored_facts(path, entry)) or _loaded_facts(path, file)


def _stored_facts(path: Path, entry: dict[str, Any]) -> RecipeFacts | None:
    if entry["here"] not in (None, str(Path.cwd())) or not is_unchanged(entry["key"]):
        return None
    facts = entry["facts"]
    paper = None if facts["paper"] is None else Paper.model_validate(facts["paper"])
    return RecipeFacts(**{**facts, "path": path, "paper": paper, "requirements": _requirements(facts["requirements"])})


def _requirements(stored: Iterable[dict[str, Any]]) -> tuple[Requirement, ...]:
    return tuple(Requirement(**_tuples(one)) for one in stored)


def _loaded_facts(path: Path, file: Path) -> RecipeFacts:
    """Load a recipe, with all components, and put its facts into the cache."""
    from cse_cli.recipe.load import load, read

    began = time.time_ns()
    try:
        written = read(str(path))
    except CseError as error:
        return RecipeFacts(path, title(path), error=str(error))
    try:
        facts = _facts(path, load(str(path)).recipe)
    except CseError as error:
        facts = RecipeFacts(path, title(path), error=str(error))
    key = key_of_recipe(written)
    if not changed_since([key], began):
        here = str(Path.cwd()) if facts.error else None  # messages show paths from here
        paper = None if facts.paper is None else facts.paper.model_dump()
        to_cache(file, {"key": key, "here": here, "facts": {**asdict(facts), "path": None, "paper": paper}})
    return facts


def _facts(path: Path, recipe: Recipe) -> RecipeFacts:
    return RecipeFacts(
        path=path,
        title=recipe.title,
        language=recipe.language,
        paper=recipe.paper,
        settings=recipe.hash(),
        resolved=json.loads(json.dumps(recipe.resolved())),  # the same from the cache and without it
        requirements=tuple(requirements(recipe)),
    )


@dataclass(frozen=True)
class CellFacts:
    """One cell of a study.

    Args:
        cell: The cell, without its loaded recipe.
        requirements: Models, data sets and files that its recipe names with its settings.
    """

    cell: Cell
    requirements: tuple[Requirement, ...]


def cell_facts(study: Study) -> tuple[CellFacts, ...]:
    """Return the cells of a study, row by row, from the cache if nothing changed.

    Raises:
        RecipeError: A recipe is not valid with its settings.
    """
    file = entry_file("studies", study.path.absolute())
    return from_cache(file, _stored_cells) or _loaded_cells(study, file)


def _stored_cells(entry: dict[str, Any]) -> tuple[CellFacts, ...] | None:
    from cse_cli.recipe.cells import Cell

    recipes = entry["recipes"].items()
    if not is_unchanged(entry["key"]) or not all(_is_same(name, key) for name, key in recipes):
        return None
    return tuple(CellFacts(Cell(**_tuples(one["cell"])), _requirements(one["requirements"])) for one in entry["cells"])


def _tuples(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}


def _is_same(name: str, key: Key) -> bool:
    return str(find(name).absolute()) == key["files"][0][0] and is_unchanged(key)


def _loaded_cells(study: Study, file: Path) -> tuple[CellFacts, ...]:
    """Load all recipes of a study, and put the facts of its cells into the cache."""
    from cse_cli.recipe.cells import cells
    from cse_cli.recipe.load import chain, read

    began = time.time_ns()
    key = key_of(chain(study.path, study=True), study=True)
    loaded = [(cell, cell.resolved) for cell in cells(study) if cell.resolved is not None]
    found = tuple(CellFacts(replace(cell, resolved=None), tuple(requirements(recipe))) for cell, recipe in loaded)
    keys = {name: key_of_recipe(read(name)) for name in {cell.recipe for cell, _ in loaded}}
    placed = {path for one in keys.values() for *_, path in one["placed"]}
    own_text = any(set(recipe.data.files) - placed for _, recipe in loaded)  # its place depends on the current folder
    if not own_text and not changed_since([key, *keys.values()], began):
        to_cache(file, {"key": key, "recipes": keys, "cells": [asdict(one) for one in found]})
    return found


@dataclass(frozen=True)
class ComponentFacts:
    """What is registered.

    Args:
        documents: Kind → all that `cse show` prints of each component, by name.
        broken: Plug-in → why it could not be imported.
    """

    documents: dict[str, list[dict[str, Any]]]
    broken: dict[str, str]

    @property
    def every(self) -> list[dict[str, Any]]:
        """The documents of all kinds."""
        return [document for kind in KINDS for document in self.documents[kind]]


def component_facts() -> ComponentFacts:
    """Return what is registered, from the cache if the installed code is unchanged."""
    file = cache() / "catalog" / "components.json"
    facts = from_cache(file, lambda entry: ComponentFacts(entry["documents"], {})) or _registered(file)
    for document in facts.every:
        document["file"] = _relative(document["file"])
    return facts


def _registered(file: Path) -> ComponentFacts:
    """Import all components, and put their documents into the cache."""
    from cse_cli.recipe.describe import broken_plugins, entries, full

    documents = {kind: [full(entry) for entry in entries(kind)] for kind in KINDS}
    to_cache(file, {"documents": documents})
    return ComponentFacts(documents, broken_plugins())


def _relative(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else file
