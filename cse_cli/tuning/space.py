"""Search space: the parameters that `--param NAME` means, and the checked range of each.

A name is a key of [tune], a dotted path, or an ending of exactly one path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.paths import values
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.parts import Candidate, choose_parts, means_part, parameters_inside
from cse_cli.tuning.ranges import (
    FORM,
    Declaration,
    Range,
    Value,
    check_range,
    declarations,
    parse_choices,
    parse_range,
)
from registry.errors import CseError, UnknownNameError, suggestion

Declarations = Mapping[str, Declaration]
"""Dotted path → declaration."""
_SCORING = "it changes the scoring, so the scores of trials would not be comparable"
_FIXED = {
    "data.streaming": "it does not change what the model learns",
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
    typed += [text.partition("=")[0].strip() for text in (*ranges, *choices) if "=" in text]
    if not typed:
        names_known = shorten(tunable(loaded.recipe, known)) or f"--range PATH={FORM}"
        raise CseError("no parameter to search", f"add --param, for example {names_known}", code="tune.no_parameter")
    parts = choose_parts(loaded, typed, choices)
    finder = _Finder(loaded, known, parameters_inside(loaded, parts))
    named: dict[str, Candidate] = {}
    for name in typed:
        if not means_part(loaded.recipe, name, parts):
            named |= {one.name: one for one in finder.find(name)}
    choices = [text for text in choices if not means_part(loaded.recipe, text.partition("=")[0].strip(), parts)]
    given = _given_ranges(finder, list(named), ranges, choices)
    found = [_parameter(one, given.get(name)) for name, one in named.items()]
    _check_paths(found)
    # Parts first: they decide which other parameters a trial has.
    return (*parts, *sorted(found, key=lambda parameter: parameter.when is not None))


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
        """Return the parameters of a name: one, or one for each component of a part that has it.

        Raises:
            CseError: If the name is unknown, or ambiguous.
        """
        recipe = self.loaded.recipe
        table = recipe.tune.get(name, TuneRange(paths=()))
        found = [one for one in self.inside.values() if self._is_named(one, name, table)]
        if not found:
            own, table = find_parameter(recipe, self.known, name)
            return [Candidate(own, table, self.loaded, self.known)]
        inside = {one.path for one in self.inside.values()}
        others = [path for path in table.paths or _matching(self.known, name) if path not in inside and _may(path)]
        if others or len({one.part for one in found}) > 1:
            raise _ambiguous(name, [*(one.name for one in found), *others])
        # A parameter without a range is searched only if its full name is given.
        ranged = [one for one in found if one.known[one.path].range or table.paths or one.name == name]
        return [replace(one, table=table.model_copy(update={"paths": (one.path,)})) for one in ranged or found]

    @staticmethod
    def _is_named(one: Candidate, name: str, table: TuneRange) -> bool:
        return one.path in table.paths if table.paths else _is_ending(name, one.path) or _is_ending(name, one.name)


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
    parameter = Parameter(
        name=name, paths=table.paths, low=found.low, high=found.high, log=found.log, step=found.step,
        choices=found.choices, whole=whole, default=default, source=source,
    )  # fmt: skip
    parameter.check_values(named.loaded)
    if not named.part:
        return parameter
    return replace(parameter, when=(named.part, named.choices), default=default if named.own else None)


def _whole(found: Range, name: str, source: str) -> Range:
    ends = {"low": found.low, "high": found.high, "step": found.step}
    for value in ends.values():
        if value is not None and not float(value).is_integer():
            message = f"{source}: '{name}' is a whole number, {value:.12g} is not"
            raise CseError(message, "use whole numbers for both ends and the step", code="tune.not_whole")
    whole = {key: int(value) for key, value in ends.items() if value is not None}
    return replace(found, low=whole.get("low"), high=whole.get("high"), step=whole.get("step"))


def _default_range(name: str, table: TuneRange, declared: Declaration, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one, and its origin."""
    plain = tuple(choice for choice in table.choices or () if isinstance(choice, Value))
    if len(plain) < len(table.choices or ()):
        message = f"[tune.{name}]: {table.paths[0]} takes a value, not a component"
        raise CseError(message, "remove the tables from `choices`", code="tune.not_a_part")
    if plain:
        return check_range(Range(choices=plain), f"[tune.{name}]"), "[tune] of the recipe"
    if table.low is not None or table.high is not None:
        own = Range(table.low, table.high, table.log, table.step)
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
    """Return the unique name of a parameter, and its [tune] table: paths, and a range if there is one.

    Raises:
        UnknownNameError: If the name matches no parameter, or several.
        CseError: If it is a table, or cannot be searched.
    """
    if name in recipe.tune:
        return _tabled(recipe, name)
    if name in known:
        return _at_path(recipe, name)
    if inside := [path for path in known if path.startswith(f"{name}.") and _may(path)]:
        action = f"name one of its values: {shorten(inside)}"
        raise CseError(f"--param: '{name}' is a table, not a value", action, code="tune.not_a_value")
    matching = _matching(known, name)
    allowed = [path for path in matching if _may(path)]
    if len(allowed) > 1:
        raise _ambiguous(name, allowed)
    if matching:
        return _at_path(recipe, (allowed or matching)[0])
    near = suggestion(name, {*recipe.tune, *filter(_may, known), *(path.rpartition(".")[2] for path in known)})
    raise UnknownNameError(
        f"--param: unknown parameter '{name}'.{near}",
        f"use one of {shorten(tunable(recipe, known))}",
        code="tune.unknown_parameter",
    )


def _ambiguous(name: str, candidates: Sequence[str]) -> UnknownNameError:
    message = f"--param: '{name}' is ambiguous between {len(candidates)} parameters"
    return UnknownNameError(message, f"use one of {shorten(candidates)}", code="tune.ambiguous_parameter")


def _tabled(recipe: Recipe, name: str) -> tuple[str, TuneRange]:
    table = recipe.tune[name]
    if not table.paths:
        raise CseError(
            f"[tune.{name}] has no `paths`", "add the dotted paths that take the value", code="tune.no_paths"
        )
    return name, table


def _at_path(recipe: Recipe, path: str) -> tuple[str, TuneRange]:
    """Return a path under its name in [tune] if it has one, so that one parameter has one name."""
    for start, reason in _FIXED.items():
        if _is_below(path, start):
            action = "name a parameter of the data, the model or the training"
            raise CseError(f"--param: '{path}' cannot be searched: {reason}", action, code="tune.fixed_parameter")
    name = _name_in_tune(recipe, path)
    return (path, TuneRange(paths=(path,))) if name is None else _tabled(recipe, name)


def _name_in_tune(recipe: Recipe, path: str) -> str | None:
    return next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)


def _may(path: str) -> bool:
    return not any(_is_below(path, start) for start in _FIXED)


def _is_below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}.")


def _matching(paths: Iterable[str], name: str) -> list[str]:
    return [path for path in paths if _is_ending(name, path)]


def _is_ending(name: str, path: str) -> bool:
    return _plain(name) in map(_plain, _endings(path))


def _endings(path: str) -> list[str]:
    keys = path.split(".")
    return [".".join(keys[start:]) for start in range(len(keys))]


def _plain(name: str) -> str:
    """Return a name in which dots, underscores and hyphens are the same."""
    return name.replace(".", "_").replace("-", "_")


def tunable(recipe: Recipe, known: Declarations) -> list[str]:
    """Return the parameters with a default range: names in [tune], then paths, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and _may(path) and path not in inside}
    return [*recipe.tune, *sorted(ranges, key=lambda path: ranges[path].choices is not None)]


def shorten(names: Iterable[str]) -> str:
    """Return the first names separated by commas, and the number of the others."""
    every = list(names)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return f"{', '.join(every[:_LISTED])}{more}"
