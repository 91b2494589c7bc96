"""Search space: the parameters that `--param NAME` means, and the checked range of each.

A name is a key of [tune], a dotted path, or an ending of exactly one path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.paths import is_ending, values
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameter import (
    FORM,
    Declaration,
    Parameter,
    Range,
    Value,
    check_range,
    declarations,
    parse_choices,
    parse_range,
)
from cse_cli.tuning.parts import Candidate, choose_parts, name_in_tune, parameters_inside
from registry.errors import CseError, UnknownNameError, suggestion

Declarations = Mapping[str, Declaration]
"""Dotted path → declaration."""
_SCORING = "it changes the scoring, so the scores of trials would not be comparable"
_FIXED = {
    "evaluate": _SCORING,
    "evaluators": _SCORING,
    "train.seed": "a lucky seed is not a better recipe. To average over seeds, use --seeds",
}
"""Path → reason why nothing below it is searched."""
_LISTED = 5


def search_space(
    loaded: LoadedRecipe, names: Sequence[str], ranges: Sequence[str] = (), choices: Sequence[str] = ()
) -> tuple[Parameter, ...]:
    """Return the parameters to search.

    Args:
        loaded: The recipe.
        names: Strings of `--param`, each with one name or several separated by commas.
        ranges: Strings of `--range`, each with "name=" before it if there are several parameters.
        choices: Strings of `--choices`, in the same form.

    Raises:
        CseError: If no parameter is named, a name is unknown or ambiguous, or a range is missing or not valid.
    """
    known = declarations(loaded.recipe)
    typed = [name.strip() for text in names for name in text.split(",") if name.strip()]
    typed += [_name(text) for text in (*ranges, *choices) if "=" in text]
    if not typed:
        names_known = shorten(tunable(loaded.recipe, known)) or f"--range PATH={FORM}"
        raise CseError("no parameter to search", f"add --param, for example {names_known}", code="tune.no_parameter")
    chosen = choose_parts(loaded, typed, choices)
    parts = {part.name: part for part in chosen.values()}.values()
    finder = _Finder(loaded, known, parameters_inside(loaded, parts))
    named = {one.name: one for name in typed if name not in chosen for one in finder.find(name)}
    given = _given_ranges(finder, list(named), ranges, [text for text in choices if _name(text) not in chosen])
    found = [_parameter(one, given.get(name)) for name, one in named.items()]
    _check_paths(found)
    # Parts first: they decide which other parameters a trial has.
    return (*parts, *sorted(found, key=lambda parameter: parameter.when is not None))


def _name(text: str) -> str:
    """Return the name in NAME=VALUES."""
    return text.partition("=")[0].strip()


def _check_paths(parameters: Iterable[Parameter]) -> None:
    owner: dict[str, str] = {}
    for parameter in parameters:
        for path in parameter.paths if parameter.when is None else ():
            if path in owner:
                message = f"--param: '{parameter.name}' and '{owner[path]}' both set {path}"
                raise CseError(message, "remove one of them", code="tune.same_path_twice")
            owner[path] = parameter.name


@dataclass(frozen=True)
class _Finder:
    """Finds parameters by name, in the recipe and inside the chosen parts."""

    loaded: LoadedRecipe
    known: Declarations
    inside: Mapping[str, Candidate]

    def find(self, name: str) -> list[Candidate]:
        """Return the parameters of a name: one, or one for each component of a part that has it."""
        recipe = self.loaded.recipe
        table = recipe.tune.get(name, TuneRange(paths=()))
        found = []
        for one in self.inside.values():
            named = is_ending(name, one.path) or is_ending(name, one.name)
            if one.path in table.paths if table.paths else named:
                found.append(one)
        if not found:
            own, table = find_parameter(recipe, self.known, name)
            return [Candidate(own, table, self.loaded, self.known)]
        inside = {one.path for one in self.inside.values()}
        paths = table.paths or [path for path in self.known if is_ending(name, path)]
        others = [path for path in paths if path not in inside and not _why_fixed(path)]
        if others or len({one.part for one in found}) > 1:
            raise _ambiguous(name, [*(one.name for one in found), *others])
        # A parameter without a range is searched only if its full name is given.
        ranged = [one for one in found if one.known[one.path].range or table.paths or one.name == name]
        return [replace(one, table=table.model_copy(update={"paths": (one.path,)})) for one in ranged or found]


def _given_ranges(
    finder: _Finder, names: Sequence[str], ranges: Sequence[str], choices: Sequence[str]
) -> dict[str, tuple[Range, str]]:
    """Return name → range, and the option as typed."""
    given: dict[str, tuple[Range, str]] = {}
    for option, texts, parse in (("--range", ranges, parse_range), ("--choices", choices, parse_choices)):
        for text in texts:
            name, equals, values = text.partition("=")
            if not equals:
                if len(names) != 1:
                    message = f"{option} {text}: ambiguous between {len(names)} parameters"
                    raise CseError(message, f"write {option} {[*names, 'NAME'][0]}={text}", code="tune.unnamed_range")
                name, values = names[0], text
            for one in finder.find(name.strip()):
                if one.name in given:
                    message = f"{option} {text}: '{one.name}' has two ranges"
                    raise CseError(message, "remove one of them", code="tune.two_ranges")
                given[one.name] = (parse(values), f"{option} {values}")
    return given


def _parameter(named: Candidate, given: tuple[Range, str] | None) -> Parameter:
    name, table = named.name, named.table
    current = [values(named.loaded.recipe)[path] for path in table.paths]
    default = current[0] if all(value == current[0] for value in current) else None
    if isinstance(current[0], Mapping | list | tuple):
        kind = "table" if isinstance(current[0], Mapping) else "array"
        action = "name a number, a switch or a choice; `cse show COMPONENT` lists them"
        raise CseError(f"--param: '{name}' is of type {kind}, not a single value", action, code="tune.not_a_value")
    declared = named.known[named.path]
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
        found = _whole(found, name, source)
    parameter = Parameter(**vars(found), name=name, paths=table.paths, whole=whole, default=default, source=source)
    parameter = parameter.checked(named.loaded)
    if not named.part:
        return parameter
    return replace(parameter, when=(named.part, named.choices), default=default if named.own else None)


def _whole(found: Range, name: str, source: str) -> Range:
    whole: dict[str, Any] = {}
    for key in ("low", "high", "step"):
        if (value := getattr(found, key)) is None:
            continue
        if not float(value).is_integer():
            message = f"{source}: '{name}' is a whole number, {value:.12g} is not"
            raise CseError(message, "use whole numbers for both ends and the step", code="tune.not_whole")
        whole[key] = int(value)
    return replace(found, **whole)


def _default_range(name: str, table: TuneRange, declared: Declaration, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one, and its origin."""
    plain = tuple(choice for choice in table.choices or () if isinstance(choice, Value))
    if len(plain) < len(table.choices or ()):
        message = f"[tune.{name}]: {table.paths[0]} takes a value, not a component"
        raise CseError(message, "remove the tables from `choices`", code="tune.not_a_part")
    if plain or table.low is not None or table.high is not None:
        own = Range(choices=plain) if plain else Range(table.low, table.high, table.log, table.step)
        return check_range(own, f"[tune.{name}]"), "[tune] of the recipe"
    if declared.range is not None:
        return _widened(declared.range, default, f"declared by {declared.owner}")
    option = f"--range {FORM}" if declared.numeric else "--choices FIRST,SECOND"
    raise CseError(f"--param: '{name}' has no default range", f"add {option}", code="tune.no_range")


def _widened(declared: Range, default: Value | None, source: str) -> tuple[Range, str]:
    """Return a declared range extended to the recipe's value, which is known to work."""
    low, high = declared.low, declared.high
    if low is None or high is None or declared.step is not None or not isinstance(default, int | float):
        return declared, source
    if low <= default <= high or (declared.log and default <= 0):
        return declared, source
    wider = replace(declared, low=min(low, default), high=max(high, default))
    return wider, f"{source}, widened to the recipe's {default:.12g}"


def find_parameter(recipe: Recipe, known: Declarations, name: str) -> tuple[str, TuneRange]:
    """Return the unique name of a parameter, and its [tune] table: paths, and a range if there is one."""
    if name in recipe.tune:
        return _in_tune(recipe, name)
    if name in known:
        return _at_path(recipe, name)
    searchable = [path for path in known if not _why_fixed(path)]
    if inside := [path for path in searchable if path.startswith(f"{name}.")]:
        action = f"name one of its values: {shorten(inside)}"
        raise CseError(f"'{name}' is a table, not a value", action, code="tune.not_a_value")
    matching = [path for path in known if is_ending(name, path)]
    allowed = [path for path in searchable if path in matching]
    if len(allowed) > 1:
        raise _ambiguous(name, allowed)
    if matching:
        return _at_path(recipe, (allowed or matching)[0])
    has_queue = recipe.queue is not None or not name.startswith("queue")
    near = (
        " The recipe has no queue."
        if not has_queue
        else suggestion(name, {*recipe.tune, *searchable, *(path.rpartition(".")[2] for path in known)})
    )
    raise UnknownNameError(
        f"unknown parameter '{name}'.{near}",
        f"use one of {shorten(tunable(recipe, known))}",
        code="tune.unknown_parameter",
    )


def _ambiguous(name: str, candidates: Sequence[str]) -> UnknownNameError:
    message = f"'{name}' is ambiguous between {len(candidates)} parameters"
    return UnknownNameError(message, f"use one of {shorten(candidates)}", code="tune.ambiguous_parameter")


def _in_tune(recipe: Recipe, name: str) -> tuple[str, TuneRange]:
    table = recipe.tune[name]
    if not table.paths:
        action = "add the dotted paths that take the value"
        raise CseError(f"[tune.{name}] has no `paths`", action, code="tune.no_paths")
    return name, table


def _at_path(recipe: Recipe, path: str) -> tuple[str, TuneRange]:
    """Return a path under its name in [tune] if it has one, so that one parameter has one name."""
    if reason := _why_fixed(path):
        action = "name a parameter of the data, the model or the training"
        raise CseError(f"'{path}' cannot be searched: {reason}", action, code="tune.fixed_parameter")
    name = name_in_tune(recipe, path)
    return (path, TuneRange(paths=(path,))) if name is None else _in_tune(recipe, name)


def _why_fixed(path: str) -> str | None:
    """Return why a path is not searched, or None if it can be."""
    return next((reason for start, reason in _FIXED.items() if f"{path}.".startswith(f"{start}.")), None)


def tunable(recipe: Recipe, known: Declarations) -> list[str]:
    """Return the parameters with a default range: names in [tune], then paths, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and path not in inside}
    paths = [path for path in ranges if not _why_fixed(path)]
    return [*recipe.tune, *sorted(paths, key=lambda path: ranges[path].choices is not None)]


def shorten(names: Sequence[str]) -> str:
    """Return the first names separated by commas, and the number of the others."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"
