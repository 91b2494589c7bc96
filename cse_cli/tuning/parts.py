"""Choices of parts: components for one place of the recipe, and the parameters that only some of them have."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tomlkit

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, changed
from cse_cli.recipe.paths import is_list_of_parts, is_place, setting
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameter import Declaration, Parameter, Value, declarations, part_tables, settings_of, split_values
from registry.errors import CseError

FORM = """for example --choices 'queue=[false, { name = "fifo", view = "anchor" }]'"""
_MOST_TRIED = 1000
"""Combinations with other parts that are tried before a choice is an error."""


@dataclass(frozen=True)
class Candidate:
    """A parameter that can be searched.

    Args:
        name: Unique name. Inside a part, the names of part, component and parameter, such as "queue.fifo.length".
        table: Its paths, and its range if [tune] has one.
        loaded: Recipe that has it.
        known: Declarations of that recipe.
        part: Name of the part that contains it, or "".
        choices: Choices of this part that have the parameter and do not set it themselves.
        own: Whether the original recipe has it.
    """

    name: str
    table: TuneRange
    loaded: LoadedRecipe
    known: Mapping[str, Declaration]
    part: str = ""
    choices: tuple[Value, ...] = ()
    own: bool = True

    @property
    def path(self) -> str:
        """First of its paths."""
        return self.table.paths[0]


def choose_parts(loaded: LoadedRecipe, names: Sequence[str], choices: Sequence[str]) -> dict[str, Parameter]:
    """Return name as typed → part, for the names of parameters that mean a part."""
    given = {name.strip(): text for name, equals, text in (text.partition("=") for text in choices) if equals}
    tables = {typed: named for typed in names if (named := _table(loaded.recipe, typed)) is not None}
    found: dict[str, Parameter] = {}
    for typed, (name, table) in tables.items():
        if typed in given:
            found[name] = _part(loaded, name, table.paths[0], split_values(given[typed]), f"--choices {given[typed]}")
        elif table.choices is not None and name not in found:
            found[name] = _part(loaded, name, table.paths[0], table.choices, "[tune] of the recipe")
    for one, other in itertools.permutations(found.values(), 2):
        if one.paths[0].startswith(f"{other.paths[0]}."):
            raise CseError(
                f"--choices: {one.name} is a part of {other.name}", "search only one", code="tune.nested_parts"
            )
    return {typed: found[name] for typed, (name, _) in tables.items() if name in found}


def _table(recipe: Recipe, typed: str) -> tuple[str, TuneRange] | None:
    """Return name and [tune] table of the part with this name, or None if it is not a part."""
    name = name_in_tune(recipe, typed) or typed
    table = recipe.tune.get(name, TuneRange(paths=(typed,)))
    return (name, table) if len(table.paths) == 1 and is_place(recipe, table.paths[0]) else None


def name_in_tune(recipe: Recipe, path: str) -> str | None:
    """Return the key of the [tune] table with only this path, or None."""
    return next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)


def _part(loaded: LoadedRecipe, name: str, place: str, values: Sequence[Any], source: str) -> Parameter:
    present = setting(loaded.recipe, place)
    several = is_list_of_parts(place) and present
    if several and len(present) > 1:
        own: Value = _as_toml(present)
    else:
        own = str((present[0] if several else present)["name"]) if present else False
    choices = tuple(dict.fromkeys([own, *(_choice(value, place, source) for value in values)]))
    if len(choices) < 2:
        raise CseError(f"{source}: the recipe's {name} is the only choice", f"add others, {FORM}", code="tune.one_part")
    tables = loaded.recipe.tune.items()
    drops = tuple(key for key, one in tables if any(f"{path}.".startswith(f"{place}.") for path in one.paths))
    return Parameter(name=name, paths=(place,), choices=choices, default=own, source=source, part=True, drops=drops)


def _choice(value: Any, place: str, source: str) -> Value:
    """Return a choice that a sampler can hold: a name, a table in TOML, or False."""
    if value is False or value == "none":
        return False
    if isinstance(value, str) and value.isidentifier():
        return value
    several = isinstance(value, list | tuple) and is_list_of_parts(place)
    if isinstance(value, Mapping) or (several and value and all(isinstance(one, Mapping) for one in value)):
        return _as_toml(value)
    raise CseError(f"{source}: {_as_toml(value)} is not a component or a table", FORM, code="tune.not_a_part")


def _as_toml(value: Any) -> str:
    """Return a value in TOML on one line."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def with_parts(loaded: LoadedRecipe, parts: Collection[Parameter], values: Mapping[str, Any]) -> LoadedRecipe:
    """Return the recipe with the parts of a trial.

    Raises:
        RecipeError: If the parts are not compatible.
    """
    return changed(loaded, *settings_of(tuple(parts), values))


def parameters_inside(loaded: LoadedRecipe, parts: Collection[Parameter]) -> dict[str, Candidate]:
    """Return name → parameter inside the chosen parts. A choice that no combination accepts is an error."""
    found: dict[str, Candidate] = {}
    for part in parts:
        for choice in part.choices or ():
            for one in _inside(part, choice, _fitting(loaded, parts, part, choice)):
                before = found.get(one.name)
                found[one.name] = one if before is None else replace(before, choices=(*before.choices, choice))
    return found


def _fitting(loaded: LoadedRecipe, parts: Collection[Parameter], part: Parameter, choice: Value) -> LoadedRecipe:
    """Return the recipe with this choice, and with the other parts' own choices if they are compatible."""
    axes = [(choice,) if one is part else one.choices or () for one in parts]
    reasons: list[RecipeError] = []
    for values in itertools.islice(itertools.product(*axes), _MOST_TRIED):
        try:
            return with_parts(loaded, parts, dict(zip((one.name for one in parts), values, strict=True)))
        except RecipeError as error:
            reasons.append(error)
    lost = any(problem.code == "recipe.lost_parameters" for problem in reasons[0].problems)
    example = 'give up parameters in the choice: { name = "…", remove = ["…"] }'
    raise CseError(
        f"{part.source}: {part.name} = {choice} is not valid: {reason_of(reasons[0])}",
        example if lost else "see `cse list` for components and `cse show COMPONENT` for their parameters",
        code="tune.invalid_part",
    ) from reasons[0]


def reason_of(error: RecipeError) -> str:
    """Return in one line why parts are not compatible."""
    return "; ".join(f"{one.keys}: {one.message}" if one.keys else one.message for one in error.problems)


def _inside(part: Parameter, choice: Value, loaded: LoadedRecipe) -> Iterator[Candidate]:
    """Yield the parameters of a choice that its table does not set."""
    (place,) = part.paths
    tables = part_tables(choice)
    several = is_list_of_parts(place)
    written: dict[str, dict[str, Any]] = {}
    if choice != part.default:
        written = {f"{place}.{number}" if several else place: table for number, table in enumerate(tables)}
    known = declarations(loaded.recipe)
    for path in known:
        if not path.startswith(f"{place}."):
            continue
        rest = path.removeprefix(f"{place}.")
        number, _, key = rest.partition(".") if several else ("", "", rest)
        at = f"{place}.{number}" if several else place
        if key not in written.get(at, ()):
            component = setting(loaded.recipe, f"{at}.name")
            own_name = rest if len(tables) > 1 else key
            name = f"{part.name}.{component}.{own_name}"
            yield Candidate(name, TuneRange(paths=(path,)), loaded, known, part.name, (choice,), choice == part.default)
