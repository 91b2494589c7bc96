"""Which of many recipes are run: one of each set of components, for others differ by numbers and checkpoints alone."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from cse_cli.recipe.load import load


@cache
def resolved(name: str) -> dict[str, Any]:
    """Return the tables of a recipe, complete."""
    return load(name).recipe.resolved()


def trains(name: str) -> bool:
    """Whether a recipe takes steps."""
    return bool(resolved(name)["train"].get("steps") != 0)


def components(name: str) -> frozenset[tuple[str, str]]:
    """Return kind and name of every component of a recipe that takes part in training."""
    return frozenset(_components(resolved(name)))


def _components(tables: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for encoder in tables["encoders"].values():
        yield "encoder", encoder["name"]
        yield from (("head", head["name"]) for head in encoder.get("heads", {}).values())
    for view in tables["views"].values():
        yield from (("augmenter", part["name"]) for part in view["augment"])
    yield from (("loss", loss["name"]) for loss in tables["losses"].values())
    if "queue" in tables:
        yield "queue", tables["queue"]["name"]


def distinct(names: Iterable[str], *kinds: str) -> list[str]:
    """Return the names, without those that have the components of an earlier one, or those of some kinds."""
    found: dict[frozenset[tuple[str, str]], str] = {}
    for name in names:
        found.setdefault(frozenset(one for one in components(name) if not kinds or one[0] in kinds), name)
    return list(found.values())


def one_of_each(names: Iterable[str]) -> list[Any]:
    """Return parameters: the names, marked `exhaustive` where an earlier one has the same components."""
    seen: set[frozenset[tuple[str, str]]] = set()
    made = []
    for name in names:
        made.append(name if components(name) not in seen else pytest.param(name, marks=pytest.mark.exhaustive))
        seen.add(components(name))
    return made


def these(kept: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters: the values, marked `exhaustive` where they are not among those kept."""
    kept = list(kept)
    several = any(isinstance(value, tuple) for value in kept)
    return [
        value if value in kept else pytest.param(*(value if several else [value]), marks=pytest.mark.exhaustive)
        for value in values
    ]
