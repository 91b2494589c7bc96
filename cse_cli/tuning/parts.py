"""Choices of parts: which component stands at a place of the recipe, and the parameters that only some of them have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, changed, toml_value
from cse_cli.recipe.paths import is_list_of_parts, is_place, setting
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameter import Parameter, as_toml, part_tables, settings_of
from cse_cli.tuning.ranges import Declaration, Value, declarations
from registry.errors import CseError

FORM = """such as 'queue=[false, { name = "fifo", view = "anchor" }]'"""
_MOST_TRIED = 1000
"""Combinations with the other parts that are tried before a choice counts as one that fits nowhere."""


@dataclass(frozen=True)
class Inside:
    """A parameter that some choices of a part have.

    Args:
        name: Part, component and parameter, such as "queue.fifo.length".
        path: Where it stands in a recipe with one of them.
        part: Name of the part.
        choices: Those that have it, and do not give its value themselves.
        own: Whether the recipe's own part is one of them.
        loaded: The recipe with the first of them.
        known: What can be set there.
    """

    name: str
    path: str
    part: str
    choices: tuple[Value, ...]
    own: bool
    loaded: LoadedRecipe
    known: Mapping[str, Declaration]


def choose_parts(loaded: LoadedRecipe, names: Sequence[str], choices: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parts among what is searched.

    Args:
        loaded: The recipe.
        names: As typed; a key of [tune] may mean a part.
        choices: Of `--choices`.

    Raises:
        CseError: A choice is none, or there are fewer than two.
    """
    given = {name.strip(): text for name, equals, text in (text.partition("=") for text in choices) if equals}
    found: dict[str, Parameter] = {}
    for typed in names:
        named = _named(loaded.recipe, typed)
        if named is None or (typed not in given and named[1].choices is None):
            continue
        name, table = named
        if typed in given:
            values, source = _split(given[typed]), f"--choices {given[typed]}"
        else:
            values, source = list(table.choices or ()), "[tune] of the recipe"
        if name not in found or typed in given:
            found[name] = _part(loaded, name, table.paths[0], values, source)
    for one, other in itertools.permutations(found.values(), 2):
        if one.paths[0].startswith(f"{other.paths[0]}."):
            raise CseError(f"--choices: {one.name} stands inside {other.name}", "leave out one of them")
    return tuple(found.values())


def _named(recipe: Recipe, typed: str) -> tuple[str, TuneRange] | None:
    """Return the name and the table of [tune] of the part that is meant; None where it is no part."""
    name = next((name for name, table in recipe.tune.items() if table.paths == (typed,)), typed)
    table = recipe.tune.get(name, TuneRange(paths=(typed,)))
    return (name, table) if len(table.paths) == 1 and is_place(recipe, table.paths[0]) else None


def means_part(recipe: Recipe, typed: str, parts: Sequence[Parameter]) -> bool:
    """Return whether a name as typed is that of one of the parts."""
    named = _named(recipe, typed)
    return named is not None and any(part.name == named[0] for part in parts)


def _split(text: str) -> list[Any]:
    """Return the values between commas that stand in no table, array or quotes."""
    text = text.strip()
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    values, start, depth, quote = [], 0, 0, ""
    for place, letter in enumerate(inner):
        if letter in "\"'":
            quote = "" if letter == quote else quote or letter
        elif not quote:
            depth += (letter in "{[") - (letter in "}]")
            if letter == "," and depth == 0:
                values.append(inner[start:place])
                start = place + 1
    return [toml_value(value.strip()) for value in [*values, inner[start:]]]


def _part(loaded: LoadedRecipe, name: str, place: str, values: Sequence[Any], source: str) -> Parameter:
    own = own_part(loaded.recipe, place)
    choices = list(dict.fromkeys([own, *(_choice(value, place, source) for value in values)]))
    if len(choices) < 2:
        raise CseError(f"{source}: the recipe's own {name} is the only choice", f"name others, {FORM}")
    drops = tuple(
        key
        for key, table in loaded.recipe.tune.items()
        if any(f"{path}.".startswith(f"{place}.") for path in table.paths)
    )
    return Parameter(
        name=name, paths=(place,), choices=tuple(choices), default=own, source=source, part=True, drops=drops
    )


def _choice(value: Any, place: str, source: str) -> Value:
    """Return a choice as a sampler can hold it: a name, TOML of a table, or False."""
    if value is False or value == "none":
        return False
    tables = isinstance(value, list | tuple) and is_list_of_parts(place)
    if isinstance(value, str) and value and value.isidentifier():
        return value
    if isinstance(value, Mapping) or (tables and value and all(isinstance(one, Mapping) for one in value)):
        return as_toml(value)
    raise CseError(f"{source}: {as_toml(value)} is neither the name of a part nor a table", f"write it {FORM}")


def own_part(recipe: Recipe, place: str) -> Value:
    """Return what stands at a place, as a choice."""
    here = setting(recipe, place)
    if is_list_of_parts(place):
        names = [part["name"] for part in here]
        return (names[0] if len(names) == 1 else as_toml(here)) if names else False
    return str(here["name"]) if here else False


def with_parts(loaded: LoadedRecipe, parts: Sequence[Parameter], values: Mapping[str, Any]) -> LoadedRecipe:
    """Return the recipe with the parts of a trial.

    Raises:
        RecipeError: They do not fit together.
    """
    return changed(loaded, *settings_of(parts, values))


def parameters_inside(loaded: LoadedRecipe, parts: Sequence[Parameter]) -> dict[str, Inside]:
    """Return by name the parameters that lie in parts which are chosen.

    Raises:
        CseError: A choice fits no combination of the others.
    """
    found: dict[str, Inside] = {}
    for part in parts:
        for choice in part.choices or ():
            for one in _inside(part, choice, _fitting(loaded, parts, part, choice)):
                before = found.get(one.name)
                found[one.name] = one if before is None else replace(before, choices=(*before.choices, choice))
    return found


def _fitting(loaded: LoadedRecipe, parts: Sequence[Parameter], part: Parameter, choice: Value) -> LoadedRecipe:
    """Return the recipe with a choice and, as far as it fits them, the other parts' own."""
    others = [one for one in parts if one is not part]
    first: RecipeError | None = None
    for values in itertools.islice(itertools.product(*(one.choices or () for one in others)), _MOST_TRIED):
        chosen = dict(zip((one.name for one in others), values, strict=True))
        try:
            return with_parts(loaded, parts, {**chosen, part.name: choice})
        except RecipeError as error:
            first = first or error
    raise CseError(f"{part.source}: {part.name} cannot be {choice}: {reason_of(first)}",
                   "`cse list` and `cse show COMPONENT` tell what there is and what it takes") from first  # fmt: skip


def reason_of(error: RecipeError | None) -> str:
    """Return in one line why parts do not fit."""
    problems = error.problems if error is not None else []
    return "; ".join(f"{problem.keys}: {problem.message}" if problem.keys else problem.message for problem in problems)


def _inside(part: Parameter, choice: Value, loaded: LoadedRecipe) -> Iterator[Inside]:
    """Yield what can be searched of a choice: what its table gives a value is not."""
    (place,) = part.paths
    tables = part_tables(choice)
    several = is_list_of_parts(place)
    written = {} if choice == part.default else {
        f"{place}.{number}" if several else place: table for number, table in enumerate(tables)
    }  # fmt: skip
    known = declarations(loaded.recipe)
    for path in known:
        if not path.startswith(f"{place}."):
            continue
        rest = path.removeprefix(f"{place}.")
        number, _, key = rest.partition(".") if several else ("", "", rest)
        at = f"{place}.{number}" if several else place
        if key not in written.get(at, ()):
            component = setting(loaded.recipe, f"{at}.name")
            name = f"{part.name}.{component}.{rest if len(tables) > 1 else key}"
            yield Inside(name, path, part.name, (choice,), choice == part.default, loaded, known)
