"""Models, data sets, files and packages that a recipe requires. Nothing is searched for on the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal

from cse_cli.recipe.schema import Recipe
from registry.machinery.core import Entry
from registry.machinery.parameters import Parameters
from registry.resources.catalog import ALL

Kind = Literal["model", "dataset", "file", "package"]

HUB = "hf:"
"""Prefix of data sets on the Hugging Face Hub that are not in the catalog."""

NOT_INSTALLED = "it is not installed"
"""Problem of a package."""

EVALUATED = ""
"""Name of a requirement that stands for the data sets of all evaluators."""


@dataclass(frozen=True)
class Requirement:
    """A model, data set, file or optional package that a recipe requires.

    `wanted_by` are the dotted paths in the recipe that contain the name.
    """

    kind: Kind
    name: str
    split: str = ""
    wanted_by: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.kind} {self.name}{f'/{self.split}' if self.split else ''}"

    @property
    def installation(self) -> str | None:
        """Next action for a package that is not installed. None for everything else."""
        lacks = self.kind == "package" and find_spec(self.name) is None
        return f"run `pip install {self.name}`" if lacks else None


def requirements(recipe: Recipe) -> list[Requirement]:
    """Return everything that a recipe requires, each once, in the order of the recipe."""
    wanted = [one for placed in recipe.parts() for one in of_part(placed.place, placed.entry, placed.part.params)]
    if any(one.name == EVALUATED for one in wanted):  # an encoder is fitted to complete data sets of the evaluators
        wanted = [
            replace(one, split=ALL) if one.kind == "dataset" and one.wanted_by[0].startswith("evaluators.") else one
            for one in wanted
            if one.name != EVALUATED
        ]
    return _merge(chain(of_training(recipe), wanted))


def merged_requirements(recipes: Iterable[Recipe]) -> list[Requirement]:
    """Return everything that several recipes require, each once, with all paths that contain the name."""
    return _merge(one for recipe in recipes for one in requirements(recipe))


def _merge(wanted: Iterable[Requirement]) -> list[Requirement]:
    found: dict[tuple[Kind, str, str], Requirement] = {}
    for one in wanted:
        key = one.kind, one.name, one.split
        before = found[key].wanted_by if key in found else ()
        found[key] = replace(one, wanted_by=tuple(dict.fromkeys((*before, *one.wanted_by))))
    return list(found.values())


def of_training(recipe: Recipe) -> Iterator[Requirement]:
    """Yield the training data of a recipe, or nothing if it does not train."""
    if recipe.train.steps == 0:
        return
    for name in recipe.data.dataset:
        yield Requirement("dataset", name, recipe.data.split, ("data.dataset",))
    for file in recipe.data.files:
        yield Requirement("file", file, "", ("data.file",))


def of_part(place: str, entry: Entry[Any], parameters: Parameters) -> Iterator[Requirement]:
    """Yield the requirements of the component at a place. Its signature declares them."""
    for parameter, package in entry.packages.items():
        if parameters.get(parameter) is not None:
            yield Requirement("package", package.name, "", (f"{place}.{parameter}",))
    for parameter, mark in entry.resources.items():
        value = parameters.get(parameter)
        names = value if isinstance(value, list | tuple) else [value]
        for name in names:
            if name is None:
                continue
            named = EVALUATED if name == mark.evaluated else str(name)
            kind: Kind = "dataset" if named.startswith(HUB) else mark.kind
            split = str(parameters.get("split", ALL)) if kind == "dataset" else ""
            yield Requirement(kind, named, split, (f"{place}.{parameter}",))
