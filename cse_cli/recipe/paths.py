"""Dotted paths into a complete recipe: which exist, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cse_cli.recipe.keys import dotted
from cse_cli.recipe.problems import Problems, nearest
from cse_cli.recipe.schema import Recipe


def values(recipe: Recipe) -> dict[str, Any]:
    """Return dotted path → value of everything in a recipe that can be set, including defaults."""
    found: dict[str, Any] = {}
    for section in ("data", "train", "evaluate"):
        found |= {f"{section}.{key}": value for key, value in getattr(recipe, section)}
    for placed in recipe.parts():
        for key, value in {**dict(placed.part.params), **placed.part.own}.items():
            path = dotted((*placed.keys, key))
            found[path] = value
            if isinstance(value, Mapping):
                found |= {f"{path}.{dotted((inner,))}": each for inner, each in value.items()}
    for name, view in recipe.views.items():
        found |= {f"views.{name}.encoder": view.encoder, f"views.{name}.column": view.column}
    return found


_PLAIN = str.maketrans(".-", "__")
"""Makes dots, underscores and hyphens the same."""


def is_ending(name: str, path: str) -> bool:
    """Return whether a name is a dotted path or the end of one, such as "temperature" or "info_nce.temperature"."""
    keys = path.split(".")
    endings = (".".join(keys[start:]) for start in range(len(keys)))
    return any(name.translate(_PLAIN) == ending.translate(_PLAIN) for ending in endings)


def setting(recipe: Recipe, path: str) -> Any:
    """Return the value at a dotted path, which may be the name of a component, or None if it does not exist.

    A component in an array is identified by its position or its name, as in `--set`.
    """
    found: Any = recipe.resolved()
    for key in path.split("."):
        if isinstance(found, list | tuple):
            by_name = {part["name"]: part for part in found if isinstance(part, Mapping) and "name" in part}
            found = {str(position): part for position, part in enumerate(found)} | by_name
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def is_place(recipe: Recipe, path: str) -> bool:
    """Return whether a dotted path is the place of a component, or of the augmenters of a view."""
    match path.split("."):
        case ["queue"]:
            return True
        case ["losses", name]:
            return name in recipe.losses
        case ["encoders", name]:
            return name in recipe.encoders
        case ["encoders", name, "heads", head]:
            return name in recipe.encoders and head in recipe.encoders[name].heads
        case ["views", name, "augment"]:
            return name in recipe.views
    return False


def is_list_of_parts(place: str) -> bool:
    """Return whether a place takes several components."""
    return place.startswith("views.")


def check_tune_paths(recipe: Recipe, problems: Problems) -> None:
    """Report tuning ranges whose paths do not exist, or that have neither two ends nor choices.

    A path below the place of a component may belong to another choice for this component.
    """
    known = values(recipe)
    places = tuple(f"{path}." for tuned in recipe.tune.values() for path in tuned.paths if is_place(recipe, path))
    for name, tuned in recipe.tune.items():
        for number, path in enumerate(tuned.paths):
            keys = ("tune", name, "paths", number)
            if path not in known and not is_place(recipe, path) and not path.startswith(places):
                problems.add("recipe.unknown_path", keys, f"the recipe has no '{path}'.{nearest(path, known)}")
            if is_place(recipe, path) and (len(tuned.paths) > 1 or tuned.choices is None):
                message = f"'{path}' is a component. Give 'choices', in a separate [tune] table"
                problems.add("recipe.conflict", keys, message)
        if tuned.low is not None and tuned.high is not None and tuned.low >= tuned.high:
            message = f"should be greater than low, {tuned.low:g}, not {tuned.high:g}"
            problems.add("recipe.invalid_value", ("tune", name, "high"), message)
        if tuned.choices is not None and (tuned.low is not None or tuned.high is not None):
            message = "give either choices or low and high, not both"
            problems.add("recipe.conflict", ("tune", name, "choices"), message, at_key=True)
        if tuned.log and tuned.low is not None and tuned.low <= 0:
            message = f"should be greater than 0 on a logarithmic scale, not {tuned.low:g}"
            problems.add("recipe.invalid_value", ("tune", name, "low"), message)
