"""What a recipe names: its models, data sets and files. Nothing is looked for on the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from cse_cli.recipe.schema import Part, Recipe
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES
from registry.catalogue.entries import ALL
from registry.core import Entry, Registry

Kind = Literal["model", "dataset", "file"]

HUB = "hf:"
"""Prefix of a data set of the hub that the catalogue does not have."""

EVALUATED = ""
"""Name of a requirement that stands for the data sets of all evaluators."""


@dataclass(frozen=True)
class Requirement:
    """One thing a recipe names.

    Args:
        kind: What it is.
        name: As the recipe writes it.
        split: Of a data set.
        wanted_by: Dotted places of the recipe that name it.
        command: What makes or fetches it, where it is a file and the recipe says so.
    """

    kind: Kind
    name: str
    split: str = ""
    wanted_by: tuple[str, ...] = ()
    command: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.name}{f'/{self.split}' if self.split else ''}"


def requirements(recipe: Recipe) -> list[Requirement]:
    """Return everything a recipe names, each once, in the order of the recipe."""
    wanted = [
        one
        for place, registry, part in parts_with_places(recipe)
        for one in of_part(place, registry[part.name], part.params)
    ]
    if recipe.data.make and not recipe.data.files:
        wanted = [replace(one, command=recipe.data.make) if one.kind == "file" else one for one in wanted]
    if any(one.name == EVALUATED for one in wanted):  # an encoder is fitted to whole data sets of the evaluators
        wanted = [_with_all_splits(one) for one in wanted if one.name != EVALUATED]
    return _distinct(chain(of_training(recipe), wanted))


def merged_requirements(recipes: Iterable[Recipe]) -> list[Requirement]:
    """Return what several recipes need, each once, with all the places that name it."""
    return _distinct(one for recipe in recipes for one in requirements(recipe))


def _distinct(wanted: Iterable[Requirement]) -> list[Requirement]:
    found: dict[tuple[Kind, str, str], Requirement] = {}
    for one in wanted:
        key = one.kind, one.name, one.split
        before = found[key].wanted_by if key in found else ()
        found[key] = replace(one, wanted_by=tuple(dict.fromkeys((*before, *one.wanted_by))))
    return list(found.values())


def _with_all_splits(one: Requirement) -> Requirement:
    evaluated = one.kind == "dataset" and one.wanted_by[0].startswith("evaluators.")
    return replace(one, split=ALL) if evaluated else one


def of_training(recipe: Recipe) -> Iterator[Requirement]:
    """Yield the training text of a recipe; nothing if it does not train."""
    if recipe.train.steps == 0:
        return
    for name in recipe.data.dataset:
        yield Requirement("dataset", name, recipe.data.split, ("data.dataset",))
    for file in recipe.data.files:
        yield Requirement("file", file, "", ("data.file",), recipe.data.make or "")


def of_part(place: str, entry: Entry[Any], parameters: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield what one component names, as its signature declares.

    Args:
        place: Dotted place in the recipe.
        entry: The component.
        parameters: All of its parameters.
    """
    for parameter, mark in entry.resources.items():
        value = parameters.get(parameter)
        for name in value if isinstance(value, list | tuple) else [value] if value is not None else []:
            named = EVALUATED if name == mark.evaluated else str(name)
            kind: Kind = "dataset" if named.startswith(HUB) else mark.kind
            split = str(parameters.get("split", ALL)) if kind == "dataset" else ""
            yield Requirement(kind, named, split, (f"{place}.{parameter}",))


def parts_with_places(recipe: Recipe) -> Iterator[tuple[str, Registry[Any], Part]]:
    """Yield every part with its dotted place and the registry it is filed in."""
    for key, encoder in recipe.encoders.items():
        yield f"encoders.{key}", ENCODERS, encoder
        for name, head in encoder.heads.items():
            yield f"encoders.{key}.heads.{name}", HEADS, head
    for key, view in recipe.views.items():
        for number, augmenter in enumerate(view.augment):
            yield f"views.{key}.augment[{number}]", AUGMENTERS, augmenter
    if recipe.queue is not None:
        yield "queue", QUEUES, recipe.queue
    for key, loss in recipe.losses.items():
        yield f"losses.{key}", LOSSES, loss
    for key, evaluator in recipe.evaluators.items():
        yield f"evaluators.{key}", EVALUATORS, evaluator
