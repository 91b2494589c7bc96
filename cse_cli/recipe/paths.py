"""Dotted paths into a complete recipe: what can be set, and what stands there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cse_cli.recipe.errors import Keys, Problems, dotted
from cse_cli.recipe.schema import Part, Recipe
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES
from registry.core import Entry, Registry
from registry.errors import suggestion

_REGISTRIES: Mapping[str, Registry[Any]] = {
    "encoders": ENCODERS, "losses": LOSSES, "evaluators": EVALUATORS, "views": AUGMENTERS, "queue": QUEUES,
}  # fmt: skip


def values(recipe: Recipe) -> dict[str, Any]:
    """Return dotted path → value of everything in a recipe that can be set, defaults included."""
    found: dict[str, Any] = {}
    for section in ("data", "train", "evaluate"):
        found |= {f"{section}.{key}": value for key, value in getattr(recipe, section)}
    for keys, part in parts(recipe):
        for key, value in {**part.params, **_own(part)}.items():
            found[dotted((*keys, key))] = value
            if isinstance(value, Mapping):
                found |= {dotted((*keys, key, inner)): v for inner, v in value.items()}
    for name, view in recipe.views.items():
        found |= {f"views.{name}.encoder": view.encoder, f"views.{name}.column": view.column}
    return found


def _own(part: Part) -> dict[str, Any]:
    return {key: value for key, value in part if key not in ("name", "params", "heads")}


def parts(recipe: Recipe) -> Iterator[tuple[Keys, Part]]:
    """Yield path and table of every component of a recipe."""
    for section in ("encoders", "losses", "evaluators"):
        for name, part in getattr(recipe, section).items():
            yield (section, name), part
    for name, encoder in recipe.encoders.items():
        for head, part in encoder.heads.items():
            yield ("encoders", name, "heads", head), part
    for name, view in recipe.views.items():
        for number, augmenter in enumerate(view.augment):
            yield ("views", name, "augment", number), augmenter
    if recipe.queue is not None:
        yield ("queue",), recipe.queue


def entry(keys: Keys, part: Part) -> Entry[Any]:
    """Return what is registered of a component, by its path in a recipe."""
    registry = HEADS if "heads" in keys else _REGISTRIES[str(keys[0])]
    return registry[part.name]


def setting(recipe: Recipe, path: str) -> Any:
    """Return the value at a dotted path, a component's name included; None where nothing stands.

    A component in a list goes by its place or by its name, as in `--set`.
    """
    found: Any = recipe.resolved()
    for key in path.split("."):
        if isinstance(found, list | tuple):
            found = {str(place): part for place, part in enumerate(found)} | _by_name(found)
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _by_name(parts: Sequence[Any]) -> dict[str, Any]:
    return {str(part["name"]): part for part in parts if isinstance(part, Mapping) and "name" in part}


def is_place(recipe: Recipe, path: str) -> bool:
    """Return whether a dotted path is where a part stands that another can replace, or a view's augmenters."""
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
    """Return whether several parts may stand at a place."""
    return place.startswith("views.")


def check_tune_paths(recipe: Recipe, problems: Problems) -> None:
    """Report tuning ranges that name nothing, or have neither two ends nor choices.

    Below a part that is itself chosen, a path may be that of another choice.
    """
    known = values(recipe)
    places = tuple(f"{path}." for about in recipe.tune.values() for path in about.paths if is_place(recipe, path))
    for name, about in recipe.tune.items():
        for number, path in enumerate(about.paths):
            if path not in known and not is_place(recipe, path) and not path.startswith(places):
                message = f"the recipe has no '{path}'.{suggestion(path, known)}"
                problems.add(("tune", name, "paths", number), message)
            if is_place(recipe, path) and (len(about.paths) > 1 or about.choices is None):
                message = "a part stands there: give its choices, in a table of its own"
                problems.add(("tune", name, "paths", number), message)
        if about.low is not None and about.high is not None and about.low >= about.high:
            problems.add(("tune", name, "high"), f"should be greater than low, {about.low:g}, not {about.high:g}")
        if about.choices is not None and (about.low is not None or about.high is not None):
            problems.add(("tune", name, "choices"), "give either choices or low and high", at_key=True)
        if about.log and about.low is not None and about.low <= 0:
            problems.add(("tune", name, "low"), f"should be greater than 0 on a log scale, not {about.low:g}")
