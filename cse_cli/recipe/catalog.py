"""Facts about recipes and components from a cache, so that commands that only read do not import torch.

The cache is in `cache()/catalog`: one file per recipe, one per study, and one for all components.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cse_cli.core.paths import cache
from cse_cli.recipe.cached import entry_file, from_cache, key_of, to_cache
from cse_cli.recipe.cells import Cell, cells, recipes_of
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import find, name_of, title
from cse_cli.recipe.load import load, read_chain
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Paper
from cse_cli.recipe.study import Study
from registry.errors import CseError


@dataclass(frozen=True)
class RecipeFacts:
    """Facts about a recipe.

    Args:
        path: Absolute path of the file.
        title: Title. If the recipe is invalid, the title in its own file.
        language: Language. Empty if the recipe is invalid.
        paper: Reported result that the recipe reproduces.
        settings: `Recipe.hash()`. Empty if the recipe is invalid.
        resolved: `Recipe.resolved()`, with lists for tuples. Empty if the recipe is invalid.
        requirements: Models, data sets and files that the recipe requires.
        error: Message with every problem. Empty if the recipe is valid.
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
        """Bare name such as "mini/ifcl_en", or the stem of the file if it has none."""
        return name_of(self.path)


def recipe_facts(name_or_path: str) -> RecipeFacts:
    """Return the facts about a recipe. If its file is missing or invalid, they contain an `error`.

    Args:
        name_or_path: Path that ends in `.toml`, or bare name such as "ifcl_en".

    Raises:
        UnknownNameError: If no recipe has this name.
    """
    path = find(name_or_path).absolute()
    try:
        key = key_of(read_chain(path))
    except CseError as error:
        return RecipeFacts(path, title(path), error=str(error))
    file = entry_file("recipes", path)
    return from_cache(file, key, RecipeFacts) or _loaded_facts(path, file, key)


def _loaded_facts(path: Path, file: Path, key: str) -> RecipeFacts:
    """Validate a recipe, which imports all components, and write its facts to the cache."""
    try:
        recipe = load(str(path)).recipe
    except CseError as error:
        facts = RecipeFacts(path, title(path), error=str(error))
    else:
        facts = RecipeFacts(
            path=path,
            title=recipe.title,
            language=recipe.language,
            paper=recipe.paper,
            settings=recipe.hash(),
            resolved=json.loads(json.dumps(recipe.resolved())),  # the same as from the cache
            requirements=tuple(requirements(recipe)),
        )
    to_cache(file, key, RecipeFacts, facts)
    return facts


@dataclass(frozen=True)
class CellFacts:
    """Facts about a cell of a study.

    Args:
        cell: Cell without its recipe.
        requirements: Models, data sets and files that its recipe requires.
    """

    cell: Cell
    requirements: tuple[Requirement, ...]


def cell_facts(study: Study) -> tuple[CellFacts, ...]:
    """Return the facts about the cells of a study, row by row.

    Raises:
        RecipeError: If a recipe is invalid with its settings.
    """
    file = entry_file("studies", study.path.absolute())
    keys = [key_of(read_chain(find(name))) for name in recipes_of(study)]
    key = "\0".join([key_of(read_chain(study.path, study=True)), *keys])
    return from_cache(file, key, tuple[CellFacts, ...]) or _loaded_cells(study, file, key)


def _loaded_cells(study: Study, file: Path, key: str) -> tuple[CellFacts, ...]:
    """Validate all recipes of a study, and write the facts about its cells to the cache."""
    loaded = [(cell, cell.resolved) for cell in cells(study) if cell.resolved is not None]
    found = tuple(CellFacts(replace(cell, resolved=None), tuple(requirements(recipe))) for cell, recipe in loaded)
    settings = (setting for cell, _ in loaded for setting in cell.overrides)
    if not any("file" in setting.path for setting in settings):  # the key does not contain the paths of such files
        to_cache(file, key, tuple[CellFacts, ...], found)
    return found


@dataclass(frozen=True)
class ComponentFacts:
    """Facts about all registered components.

    Args:
        documents: Kind → content of `cse show` of each component, in the order of their names.
        broken: Plug-in → reason why it cannot be imported.
    """

    documents: dict[str, list[dict[str, Any]]]
    broken: dict[str, str]

    @property
    def every(self) -> list[dict[str, Any]]:
        """Documents of all kinds."""
        return [document for kind in KINDS for document in self.documents[kind]]


def component_facts() -> ComponentFacts:
    """Return the facts about all registered components."""
    file = cache() / "catalog" / "components.json"
    facts = from_cache(file, "", ComponentFacts) or _registered(file)
    for document in facts.every:
        path, here = Path(document["file"]), Path.cwd()
        document["file"] = os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
    return facts


def _registered(file: Path) -> ComponentFacts:
    """Import all components, and write the facts about them to the cache."""
    from cse_cli.recipe.describe import broken_plugins, entries, full

    documents = {kind: [full(entry) for entry in entries(kind)] for kind in KINDS}
    facts = ComponentFacts(documents, broken_plugins())
    to_cache(file, "", ComponentFacts, facts)
    return facts
