"""Search space: the parameters that `--param NAME` means, and the checked values of each.

A name is a key of [tune], a dotted path, or an ending of exactly one path. It may also mean a part: a place of the
recipe that takes a component. Its choices are components, and a parameter inside it belongs only to some of them. The
values come from `--range` or `--choices`, from [tune], or from the parameter's declaration.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cse_cli.recipe.keys import inline, is_ending, is_list_of_parts
from cse_cli.recipe.load import LoadedRecipe, changed
from cse_cli.recipe.problems import RecipeError
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameters import (
    FORM,
    Declaration,
    Parameter,
    Range,
    Value,
    declarations,
    parse_choices,
    parse_range,
    reason_of,
    split_values,
    tables_of,
    with_parts,
)
from registry.errors import CseError, UnknownNameError, suggestion

_SCORING = "it changes the scoring, so the scores of trials would not be comparable"
_FIXED = {
    "evaluate": _SCORING,
    "evaluators": _SCORING,
    "train.seed": "a lucky seed is not a better recipe. To average over seeds, use --seeds",
}
"""Path → reason why nothing below it is searched."""
_LISTED = 5
_MOST_TRIED = 1000
"""Combinations with other parts that are tried before a choice is an error."""
_PARTS_FORM = """for example --choices 'queue=[false, { name = "fifo", view = "anchor" }]'"""


# The search space.


@dataclass(frozen=True)
class _Candidate:
    """A parameter that can be searched, in the recipe that has it, with the declarations of this recipe.

    Inside a `part`, its name has the names of part, component and parameter, such as "queue.fifo.length". `choices` of
    the part have the parameter and do not set it themselves.
    """

    name: str
    table: TuneRange
    loaded: LoadedRecipe
    known: Mapping[str, Declaration]
    part: Parameter | None = None
    choices: tuple[Value, ...] = ()

    @property
    def path(self) -> str:
        """First of its paths."""
        return self.table.paths[0]


def search_space(
    loaded: LoadedRecipe, names: Sequence[str], ranges: Sequence[str] = (), choices: Sequence[str] = ()
) -> tuple[Parameter, ...]:
    """Return the parameters to search. Parts are first: they decide which other parameters a trial has.

    `names`, `ranges` and `choices` are the strings of `--param`, `--range` and `--choices`. The latter two have "name="
    before the values if there are several parameters.
    """
    known = declarations(loaded.recipe)
    typed = [name.strip() for text in names for name in text.split(",") if name.strip()]
    typed += [text.partition("=")[0].strip() for text in (*ranges, *choices) if "=" in text]
    if not typed:
        names_known = shorten(tunable(loaded.recipe, known)) or f"--range PATH={FORM}"
        raise CseError("no parameter to search", f"add --param, for example {names_known}", code="tune.no_parameter")
    chosen = _choose_parts(loaded, typed, choices)
    parts = {part.name: part for part in chosen.values()}.values()
    find = partial(_find, loaded, known, _parameters_inside(loaded, parts))
    named = {one.name: one for name in typed if name not in chosen for one in find(name)}
    given: dict[str, tuple[Range, str]] = {}  # name → range, and the option as typed
    others = [text for text in choices if text.partition("=")[0].strip() not in chosen]
    for option, texts, parse in (("--range", ranges, parse_range), ("--choices", others, parse_choices)):
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                if len(named) != 1:
                    message = f"{option} {text}: ambiguous between {len(named)} parameters"
                    raise CseError(message, f"write {option} {[*named, 'NAME'][0]}={text}", code="tune.unnamed_range")
                name, value = next(iter(named)), text
            for one in find(name.strip()):
                if one.name in given:
                    message = f"{option} {text}: '{one.name}' has two ranges"
                    raise CseError(message, "remove one of them", code="tune.two_ranges")
                given[one.name] = (parse(value), f"{option} {value}")
    found = [_parameter(one, given.get(name)) for name, one in named.items()]
    owner: dict[str, str] = {}
    for parameter in found:
        for path in parameter.paths if parameter.when is None else ():
            if path in owner:
                message = f"--param: '{parameter.name}' and '{owner[path]}' both set {path}"
                raise CseError(message, "remove one of them", code="tune.same_path_twice")
            owner[path] = parameter.name
    return (*parts, *sorted(found, key=lambda parameter: parameter.when is not None))


def tunable(recipe: Recipe, known: Mapping[str, Declaration]) -> list[str]:
    """Return the parameters with a default range: names in [tune], then paths, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and path not in inside}
    paths = [path for path in ranges if not _why_fixed(path)]
    return [*recipe.tune, *sorted(paths, key=lambda path: ranges[path].choices is not None)]


def shorten(names: Sequence[str]) -> str:
    """Return the first names separated by commas, and the number of the others."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


# From a name to the parameters that it means.


def _find(
    loaded: LoadedRecipe, known: Mapping[str, Declaration], inside: Mapping[str, _Candidate], name: str
) -> list[_Candidate]:
    """Return the parameters of a name: one, or one for each component of a part that has it."""
    table = loaded.recipe.tune.get(name, TuneRange(paths=()))
    found = []
    for one in inside.values():
        if one.path in table.paths if table.paths else is_ending(name, one.path) or is_ending(name, one.name):
            found.append(one)
    if not found:
        return [_Candidate(*_find_own(loaded.recipe, known, name), loaded, known)]
    paths = table.paths or [path for path in known if is_ending(name, path)]
    elsewhere = {*paths} - {one.path for one in inside.values()}
    others = [path for path in paths if path in elsewhere and not _why_fixed(path)]
    if others or len({one.part and one.part.name for one in found}) > 1:
        raise _ambiguous(name, [*(one.name for one in found), *others])
    # A parameter without a range is searched only if its full name is given.
    ranged = [one for one in found if one.known[one.path].range or table.paths or one.name == name]
    return [replace(one, table=table.model_copy(update={"paths": (one.path,)})) for one in ranged or found]


def _find_own(recipe: Recipe, known: Mapping[str, Declaration], name: str) -> tuple[str, TuneRange]:
    """Return the unique name of a parameter of the recipe, and its [tune] table: paths, and a range if there is one."""
    path = name
    if name not in recipe.tune and name not in known:
        searchable = [path for path in known if not _why_fixed(path)]
        if inside := [path for path in searchable if path.startswith(f"{name}.")]:
            action = f"name one of its values: {shorten(inside)}"
            raise CseError(f"'{name}' is a table, not a value", action, code="tune.not_a_value")
        matching = [path for path in known if is_ending(name, path)]
        allowed = [path for path in searchable if path in matching]
        if len(allowed) > 1:
            raise _ambiguous(name, allowed)
        if not matching:
            near = " The recipe has no queue."
            if recipe.queue is not None or not name.startswith("queue"):
                near = suggestion(name, {*recipe.tune, *searchable, *(path.rpartition(".")[2] for path in known)})
            raise UnknownNameError(
                f"unknown parameter '{name}'.{near}",
                f"use one of {shorten(tunable(recipe, known))}",
                code="tune.unknown_parameter",
            )
        path = (allowed or matching)[0]
    if name not in recipe.tune and (reason := _why_fixed(path)):
        action = "name a parameter of the data, the model or the training"
        raise CseError(f"'{path}' cannot be searched: {reason}", action, code="tune.fixed_parameter")
    # A path with a name in [tune] has this name, so that one parameter has one name.
    key = name if name in recipe.tune else _name_in_tune(recipe, path)
    if key is None:
        return path, TuneRange(paths=(path,))
    if not recipe.tune[key].paths:
        action = "add the dotted paths that take the value"
        raise CseError(f"[tune.{key}] has no `paths`", action, code="tune.no_paths")
    return key, recipe.tune[key]


def _name_in_tune(recipe: Recipe, path: str) -> str | None:
    return next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)


def _why_fixed(path: str) -> str | None:
    return next((reason for start, reason in _FIXED.items() if f"{path}.".startswith(f"{start}.")), None)


def _ambiguous(name: str, candidates: Sequence[str]) -> UnknownNameError:
    message = f"'{name}' is ambiguous between {len(candidates)} parameters"
    return UnknownNameError(message, f"use one of {shorten(candidates)}", code="tune.ambiguous_parameter")


# From a parameter to its values.


def _parameter(named: _Candidate, given: tuple[Range, str] | None) -> Parameter:
    name, table, declared = named.name, named.table, named.known[named.path]
    current = [named.loaded.recipe.values()[path] for path in table.paths]
    default = current[0] if all(value == current[0] for value in current) else None
    if isinstance(current[0], Mapping | list | tuple):
        kind = "table" if isinstance(current[0], Mapping) else "array"
        action = "name a number, a switch or a choice; `cse show COMPONENT` lists them"
        raise CseError(f"--param: '{name}' is of type {kind}, not a single value", action, code="tune.not_a_value")
    whole = any(named.known[path].whole for path in table.paths)
    found, source = given or _default_range(name, table, declared, default)
    if found.choices is not None:
        choices = tuple(map(str, found.choices)) if declared.types == {"string"} else found.choices
        if default is not None and default not in choices:
            choices = (default, *choices)
        found = replace(found, choices=choices)
    elif not declared.numeric:
        options = ("a", "b") if declared.range is None else declared.range.choices or ()
        action = f"use --choices {','.join(str(option) for option in options).lower()}"
        raise CseError(f"{source}: '{name}' is not a number", action, code="tune.not_a_number")
    elif whole:
        for value in (found.low, found.high, found.step):
            if value is not None and not float(value).is_integer():
                message = f"{source}: '{name}' is a whole number, {value:.12g} is not"
                raise CseError(message, "use whole numbers for both ends and the step", code="tune.not_whole")
        low, high, step = (value if value is None else int(value) for value in (found.low, found.high, found.step))
        found = replace(found, low=low, high=high, step=step)
    parameter = Parameter(**vars(found), name=name, paths=table.paths, whole=whole, default=default, source=source)
    parameter = _checked(parameter, named.loaded)
    if named.part is None:
        return parameter
    is_own = named.part.default in named.choices
    return replace(parameter, when=(named.part.name, named.choices), default=default if is_own else None)


def _default_range(name: str, table: TuneRange, declared: Declaration, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one, and its origin."""
    plain = tuple(choice for choice in table.choices or () if isinstance(choice, Value))
    if len(plain) < len(table.choices or ()):
        message = f"[tune.{name}]: {table.paths[0]} takes a value, not a component"
        raise CseError(message, "remove the tables from `choices`", code="tune.not_a_part")
    if plain or table.low is not None or table.high is not None:
        own = Range(choices=plain) if plain else Range(table.low, table.high, table.log, table.step)
        return own.checked(f"[tune.{name}]"), "[tune] of the recipe"
    if (found := declared.range) is None:
        option = f"--range {FORM}" if declared.numeric else "--choices FIRST,SECOND"
        raise CseError(f"--param: '{name}' has no default range", f"add {option}", code="tune.no_range")
    source = f"declared by {declared.owner}"
    if found.low is None or found.high is None or found.step is not None or not isinstance(default, int | float):
        return found, source
    if found.low <= default <= found.high or (found.log and default <= 0):
        return found, source
    wider = replace(found, low=min(found.low, default), high=max(found.high, default))  # this value is known to work
    return wider, f"{source}, widened to the recipe's {default:.12g}"


def _checked(parameter: Parameter, loaded: LoadedRecipe) -> Parameter:
    """Return the parameter without declared choices that the recipe does not accept. Other values are an error."""
    kept, source, options = [], parameter.source, parameter.choices
    for value in options or [end for end in (parameter.low, parameter.high) if end is not None]:
        overrides, _ = parameter.settings(value)
        try:
            changed(loaded, overrides)
            kept.append(value)
        except RecipeError as error:
            typed = json.dumps(overrides[0].value, ensure_ascii=False)
            message = f"{source}: {parameter.name} = {typed} is not valid: {error.problems[0].message}"
            action = "see `cse show COMPONENT` for the values it accepts"
            if not options or not source.startswith("declared by") or (value == options[-1] and not kept):
                raise CseError(message, action, code="tune.invalid_value") from error
    return replace(parameter, choices=tuple(kept)) if options else parameter


# Parts.


def _choose_parts(loaded: LoadedRecipe, names: Sequence[str], choices: Sequence[str]) -> dict[str, Parameter]:
    """Return name as typed → part, for the names of parameters that mean a part."""
    given = {name.strip(): text for name, equals, text in (text.partition("=") for text in choices) if equals}
    found: dict[str, Parameter] = {}
    meant: dict[str, str] = {}
    for typed in names:
        name = _name_in_tune(loaded.recipe, typed) or typed
        table = loaded.recipe.tune.get(name, TuneRange(paths=(typed,)))
        if len(table.paths) > 1 or not loaded.recipe.is_place(table.paths[0]):
            continue
        meant[typed], place = name, table.paths[0]
        if typed in given:
            found[name] = _part(loaded, name, place, split_values(given[typed]), f"--choices {given[typed]}")
        elif table.choices is not None and name not in found:
            found[name] = _part(loaded, name, place, table.choices, "[tune] of the recipe")
    for one, other in itertools.permutations(found.values(), 2):
        if one.paths[0].startswith(f"{other.paths[0]}."):
            message = f"--choices: {one.name} is a part of {other.name}"
            raise CseError(message, "search only one", code="tune.nested_parts")
    return {typed: found[name] for typed, name in meant.items() if name in found}


def _part(loaded: LoadedRecipe, name: str, place: str, options: Sequence[Any], source: str) -> Parameter:
    """Return the parameter of a part. Each choice is a name, a table in TOML, or False to omit the part."""
    present = loaded.recipe.setting(place)
    several = is_list_of_parts(place)
    if several and present and len(present) > 1:
        own: Value = inline(present)
    else:
        own = str((present[0] if several else present)["name"]) if present else False
    choices: list[Value] = [own]
    for value in options:
        tables = value if several and isinstance(value, list | tuple) else [value]
        if value is False or value == "none":
            choices.append(False)
        elif isinstance(value, str) and value.isidentifier():
            choices.append(value)
        elif tables and all(isinstance(one, Mapping) for one in tables):
            choices.append(inline(value))
        else:
            message = f"{source}: {inline(value)} is not a component or a table"
            raise CseError(message, _PARTS_FORM, code="tune.not_a_part")
    choices = list(dict.fromkeys(choices))
    if len(choices) < 2:
        message = f"{source}: the recipe's {name} is the only choice"
        raise CseError(message, f"add others, {_PARTS_FORM}", code="tune.one_part")
    tuned = loaded.recipe.tune.items()
    drops = tuple(key for key, one in tuned if any(f"{path}.".startswith(f"{place}.") for path in one.paths))
    return Parameter(
        name=name, paths=(place,), choices=tuple(choices), default=own, source=source, part=True, drops=drops
    )


def _parameters_inside(loaded: LoadedRecipe, parts: Collection[Parameter]) -> dict[str, _Candidate]:
    """Return name → parameter inside the chosen parts. A choice that no combination accepts is an error."""
    found: dict[str, _Candidate] = {}
    for part, choice in [(one, choice) for one in parts for choice in one.choices or ()]:
        fitting, (place,), tables = _fitting(loaded, parts, part, choice), part.paths, tables_of(choice)
        known, several = declarations(fitting.recipe), is_list_of_parts(place)
        for path in [path for path in known if path.startswith(f"{place}.")]:
            rest = path.removeprefix(f"{place}.")
            number, _, key = rest.partition(".") if several else ("0", "", rest)
            if choice != part.default and key in tables[int(number)]:  # the choice sets it
                continue
            component = fitting.recipe.setting(f"{place}.{number}.name" if several else f"{place}.name")
            name = f"{part.name}.{component}.{rest if len(tables) > 1 else key}"
            one = found.get(name, _Candidate(name, TuneRange(paths=(path,)), fitting, known, part))
            found[name] = replace(one, choices=(*one.choices, choice))
    return found


def _fitting(loaded: LoadedRecipe, parts: Collection[Parameter], part: Parameter, choice: Value) -> LoadedRecipe:
    """Return the recipe with this choice, and with the other parts' own choices if they are compatible."""
    axes = [(choice,) if one is part else one.choices or () for one in parts]
    reasons: list[RecipeError] = []
    for options in itertools.islice(itertools.product(*axes), _MOST_TRIED):
        try:
            return with_parts(loaded, parts, dict(zip((one.name for one in parts), options, strict=True)))
        except RecipeError as error:
            reasons.append(error)
    lost = any(problem.code == "recipe.lost_parameters" for problem in reasons[0].problems)
    example = 'give up parameters in the choice: { name = "…", remove = ["…"] }'
    raise CseError(
        f"{part.source}: {part.name} = {choice} is not valid: {reason_of(reasons[0])}",
        example if lost else "see `cse list` for components and `cse show COMPONENT` for their parameters",
        code="tune.invalid_part",
    ) from reasons[0]
