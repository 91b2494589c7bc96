"""Facts about recipes, studies and components, from the cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cse_cli.recipe.cached import cached
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import find, name_of, place_file, title
from cse_cli.recipe.load import load, read_chain
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Paper
from cse_cli.recipe.sources import Source
from registry.errors import CseError


@dataclass(frozen=True)
class RecipeFacts:
    """Facts about a recipe.

    Args:
        title: Title of the recipe. If the recipe is invalid, the title in its own file.
        language: Language. Empty if the recipe is invalid.
        settings: `Recipe.hash()`. Empty if the recipe is invalid.
        paper: Reported result that the recipe reproduces.
        resolved: `Recipe.resolved()`, with lists for tuples. Empty if the recipe is invalid.
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

    Raises:
        UnknownNameError: If no recipe has this name.
    """
    path = find(name_or_path).absolute()
    try:
        key = _key_of(read_chain(path))
    except CseError as error:
        return RecipeFacts(path, title(path), error=str(error))
    return cached(_name_in_cache("recipes", path), key, RecipeFacts, lambda: _load_facts(path))


def _load_facts(path: Path) -> RecipeFacts:
    try:
        recipe = load(str(path)).recipe
    except CseError as error:
        return RecipeFacts(path, title(path), error=str(error))
    return RecipeFacts(
        path=path,
        title=recipe.title,
        language=recipe.language,
        paper=recipe.paper,
        settings=recipe.hash(),
        resolved=json.loads(json.dumps(recipe.resolved())),  # the same as from the cache
        requirements=tuple(requirements(recipe)),
    )


def _name_in_cache(kind: str, path: Path) -> str:
    return f"{kind}/{hashlib.sha256(str(path).encode()).hexdigest()[:32]}"


def _key_of(sources: Sequence[Source]) -> str:
    """Return a key of the files of a recipe or study, and of the paths where its data files are found."""
    placed = [place_file(Path(name), source.path.parent) for source in sources for name in _data_files(source)]
    return json.dumps([*((source.label, source.text) for source in sources), placed])


def _data_files(source: Source) -> list[str]:
    data = source.tables.get("data")
    file = data.get("file") if isinstance(data, dict) else None
    return [one for one in (file if isinstance(file, list) else [file]) if isinstance(one, str)]


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
    facts = cached("components", "", ComponentFacts, _load_components)
    for document in facts.every:
        path, here = Path(document["file"]), Path.cwd()
        document["file"] = os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
    return facts


def _load_components() -> ComponentFacts:
    from cse_cli.recipe.describe import broken_plugins, entries, full

    documents = {kind: [full(entry) for entry in entries(kind)] for kind in KINDS}
    return ComponentFacts(documents, broken_plugins())
