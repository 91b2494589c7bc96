"""References of this project, and of the methods, data and models of recipes and runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cse_cli.recipe.files import all_recipes, shipped_name
from cse_cli.recipe.load import load, read
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.sources import Source
from cse_cli.runs.index import all_runs, find_run
from cse_cli.runs.record import RECIPE
from registry.errors import UnknownNameError, suggestion
from registry.papers import method_keys
from registry.papers.bibliography import TOOL, Reference, reference
from registry.resources import catalog
from registry.resources.models import PRETRAINED, known, known_models

Keys = dict[str, tuple[str, ...]]
"""Method, data set or model → keys of its references."""


class Citations(NamedTuple):
    """References to cite, that of this project first, and the methods, data sets and models that have none."""

    references: tuple[Reference, ...]
    without: tuple[str, ...]

    @property
    def bibtex(self) -> str:
        """Text of all references."""
        return "\n\n".join(one.bibtex for one in self.references)


def citations(names: Iterable[str]) -> Citations:
    """Return the references of this project and of recipes, data sets, models and runs, each once."""
    keys: Keys = {}
    for name in names:
        keys |= _keys_of_name(name)
    used = dict.fromkeys([TOOL, *chain.from_iterable(keys.values())])
    return Citations(tuple(map(reference, used)), tuple(name for name, found in keys.items() if not found))


def _keys_of_name(name: str) -> Keys:
    if name.endswith(".toml") or name in all_recipes():
        loaded = load(name)
        return _keys_of_recipe(loaded.name, loaded.recipe, loaded.origins.sources)
    if name in catalog.names():
        return {name: catalog.entry(name).cite}
    if known(name) or (PRETRAINED / name).is_dir():
        return {name: _keys_of_model(name)}
    runs = all_runs()
    if any(run.run_id.startswith(name.lower()) or run.name == name for run in runs):
        # The recorded recipe has all values, but only the original has the names of methods.
        about = find_run(name, runs).about
        origin = about.recipe if about.recipe in all_recipes() else about.source
        sources = read(origin).origins.sources if origin in all_recipes() or Path(origin).is_file() else ()
        return _keys_of_recipe(about.name, load(str(about.path / RECIPE)).recipe, sources)
    models = chain.from_iterable((id, *about.names) for id, about in known_models().items())
    near = suggestion(name, [*all_recipes(), *catalog.names(), *models, *(run.name for run in runs)])
    raise UnknownNameError(
        f"no recipe, data set, model or run is called '{name}'.{near}",
        "`cse list recipes`, `cse data list` and `cse runs ls` show names. The path of a recipe ends in .toml",
        code="cite.unknown_name",
    )


def _keys_of_recipe(name: str, recipe: Recipe, sources: Iterable[Source]) -> Keys:
    """Return the keys of the methods of a recipe and of those that it extends, and of its data and models."""
    shipped = filter(None, (shipped_name(source.path) for source in sources))
    keys: Keys = {f"the method of {name}": tuple(chain.from_iterable(map(method_keys, shipped)))}
    for needed in requirements(recipe):
        if needed.kind == "model":
            keys[needed.name] = _keys_of_model(needed.name)
        elif needed.kind == "dataset":
            keys[needed.name] = catalog.entry(needed.name).cite if needed.name in catalog.names() else ()
    return keys


def _keys_of_model(name: str) -> tuple[str, ...]:
    about = known(name)
    return about.cite if about else (TOOL,) if (PRETRAINED / name).is_dir() else ()
