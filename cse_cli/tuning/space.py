"""The searched parameters: which ones `--param NAME` means, and the range of each, checked against the recipe.

A name is a key of [tune], a dotted path, or an ending of one path only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.paths import values
from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.parts import Inside, choose_parts, means_part, parameters_inside
from cse_cli.tuning.ranges import (
    FORM,
    Declaration,
    Number,
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
_NEVER = {
    "data.streaming": "it says how the text is read, not what is learnt",
    "evaluate": "it changes how models are scored, so that trials could not be compared",
    "evaluators": "it changes how models are scored, so that trials could not be compared",
    "train.seed": "the best of several seeds is luck, not a better recipe; --seeds averages over them",
}
_LISTED = 12


def search_space(
    loaded: LoadedRecipe, names: Sequence[str], ranges: Sequence[str] = (), choices: Sequence[str] = ()
) -> tuple[Parameter, ...]:
    """Return the parameters to search; nothing is built.

    Args:
        loaded: The recipe.
        names: Of `--param`, each of which may hold several, separated by commas.
        ranges: Of `--range`; each begins with "name=" where several parameters are searched.
        choices: Of `--choices`, likewise.

    Raises:
        CseError: No parameter is named, a name is unknown or ambiguous, or a range is missing, empty or outside what
            the parameter takes.
    """
    known = declarations(loaded.recipe)
    typed = [name.strip() for text in names for name in text.split(",") if name.strip()]
    typed += [text.partition("=")[0].strip() for text in (*ranges, *choices) if "=" in text]
    if not typed:
        can = shorten(tunable(loaded.recipe, known)) or "nothing without --range"
        raise CseError("no parameter to tune is named", f"name it with --param; {loaded.name} has {can}")
    parts = choose_parts(loaded, typed, choices)
    names_of = _Names(loaded, known, parameters_inside(loaded, parts))
    numbers = [name for name in typed if not means_part(loaded.recipe, name, parts)]
    wanted = {one.name: one for name in numbers for one in names_of.meant(name)}
    choices = [text for text in choices if not means_part(loaded.recipe, text.partition("=")[0].strip(), parts)]
    given = _given_ranges(names_of, list(wanted), ranges, choices)
    found = [_parameter(one, given.get(name)) for name, one in wanted.items()]
    _check_owners(found)
    # Parts first: they decide which of the others there are.
    return (*parts, *sorted(found, key=lambda parameter: parameter.when is not None))


def _check_owners(parameters: Iterable[Parameter]) -> None:
    owner: dict[str, str] = {}
    for parameter in parameters:
        for path in parameter.paths if parameter.when is None else ():
            if path in owner:
                raise CseError(
                    f"--param: '{parameter.name}' and '{owner[path]}' both set {path}", "leave out one of them"
                )
            owner[path] = parameter.name


@dataclass(frozen=True)
class _Wanted:
    """A parameter that was named.

    Args:
        name: Unique in the space.
        table: Its paths, and perhaps its range.
        loaded: The recipe that has it: with a part's choice, where only that has it.
        known: What can be set there.
        inside: The part that it lies in.
    """

    name: str
    table: TuneRange
    loaded: LoadedRecipe
    known: Declarations
    inside: Inside | None = None


@dataclass(frozen=True)
class _Names:
    """What a name as typed means, in the recipe and in the parts that are chosen."""

    loaded: LoadedRecipe
    known: Declarations
    inside: Mapping[str, Inside]

    def meant(self, name: str) -> list[_Wanted]:
        """Return the parameters of a name: one, or one for each component of a part that has it.

        Raises:
            CseError: There is none, or they lie in different places.
        """
        recipe = self.loaded.recipe
        table = recipe.tune.get(name, TuneRange(paths=()))
        found = [one for one in self.inside.values() if one.path in table.paths or (
            not table.paths and (_is_ending(name, one.path) or _is_ending(name, one.name)))]  # fmt: skip
        if not found:
            own, table = find_parameter(recipe, self.known, name)
            return [_Wanted(own, table, self.loaded, self.known)]
        # Those that no range is known for are meant where they are named in full.
        ranged = [one for one in found if one.known[one.path].range or table.paths or one.name == name]
        inside = {one.path for one in self.inside.values()}
        others = [path for path in table.paths or self.known if path not in inside and _may(path)]
        others = others if table.paths else [path for path in others if _is_ending(name, path)]
        if others or len({one.part for one in found}) > 1:
            listed = [*(one.name for one in found), *others]
            raise UnknownNameError(f"--param: '{name}' may be {len(listed)} parameters", f"name one: {shorten(listed)}")
        return [
            _Wanted(one.name, table.model_copy(update={"paths": (one.path,)}), one.loaded, one.known, one)
            for one in ranged or found
        ]


def _is_ending(name: str, path: str) -> bool:
    return _plain(name) in map(_plain, _endings(path))


def _given_ranges(
    names_of: _Names, names: Sequence[str], ranges: Sequence[str], choices: Sequence[str]
) -> dict[str, tuple[Range, str]]:
    """Return name → range, and the option as typed."""
    given: dict[str, tuple[Range, str]] = {}
    for option, texts, parse in (("--range", ranges, parse_range), ("--choices", choices, parse_choices)):
        for text in texts:
            name, equals, values = text.partition("=")
            if not equals:
                if len(names) != 1:
                    forms = " or ".join(f"{option} {name}={text}" for name in names[:2] or ["NAME"])
                    raise CseError(f"{option} {text}: which of {len(names)} parameters is it for?", f"write {forms}")
                name, values = names[0], text
            for one in names_of.meant(name.strip()):
                if one.name in given:
                    raise CseError(f"{option} {text}: '{one.name}' has a range already", "give each parameter one")
                given[one.name] = (parse(values), f"{option} {values}")
    return given


def _parameter(wanted: _Wanted, given: tuple[Range, str] | None) -> Parameter:
    name, table, loaded, known = wanted.name, wanted.table, wanted.loaded, wanted.known
    own = [values(loaded.recipe)[path] for path in table.paths]
    default = own[0] if all(value == own[0] for value in own) else None
    if isinstance(own[0], Mapping | list | tuple):
        what = "a table" if isinstance(own[0], Mapping) else "an array"
        raise CseError(
            f"--param: {name} is {what}, which has no single value to search",
            "name a number, a switch or a choice; `cse show COMPONENT` lists them",
        )
    declared = known[table.paths[0]]
    whole = any(known[path].whole for path in table.paths)
    found, source = given or _default_range(name, table, declared, default)
    low, high, step, choices = found.low, found.high, found.step, found.choices
    if choices is not None:
        if declared.types == {"string"}:
            choices = tuple(map(str, choices))
        if default is not None and default not in choices:
            choices = (default, *choices)
    elif not declared.numeric:
        options = declared.range.choices if declared.range is not None else None
        listed = ",".join(value if isinstance(value, str) else json.dumps(value) for value in options or ("a", "b"))
        raise CseError(f"{source}: {name} is not a number, so it has no range", f"use --choices {listed}")
    elif whole:
        low, high, step = (_whole(end, name, source) for end in (low, high, step))
    parameter = Parameter(
        name=name, paths=table.paths, low=low, high=high, log=found.log, step=step, choices=choices,
        whole=whole, default=default, source=source,
    )  # fmt: skip
    parameter.check_values(loaded)
    if (inside := wanted.inside) is None:
        return parameter
    return replace(parameter, when=(inside.part, inside.choices), default=default if inside.own else None)


def _whole(value: Number | None, name: str, source: str) -> int | None:
    if value is not None and not float(value).is_integer():
        raise CseError(f"{source}: {name} takes whole numbers, not {value:.12g}", "give whole ends and a whole step")
    return None if value is None else int(value)


def _default_range(name: str, table: TuneRange, declared: Declaration, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one, and where it comes from."""
    plain = tuple(choice for choice in table.choices or () if isinstance(choice, Value))
    if len(plain) < len(table.choices or ()):
        raise CseError(f"[tune.{name}]: no part stands at {table.paths[0]}: it takes values", "leave out the tables")
    own = Range(table.low, table.high, table.log, table.step, plain or None)
    if own.choices is not None:
        own = Range(choices=own.choices)
    if own.choices is not None or own.low is not None or own.high is not None:
        return check_range(own, f"[tune.{name}]"), "[tune] of the recipe"
    if declared.range is not None:
        return _widened(declared.range, default, f"declared by {declared.owner}")
    if declared.numeric:
        what, how = "no range is declared for it", f"--range {FORM}"
    else:
        what, how = "it takes any text", "--choices with the texts to try, commas between them"
    raise CseError(f"--param: {name} needs a range: {what}", f"add {how}")


def _widened(declared: Range, default: Value | None, source: str) -> tuple[Range, str]:
    """Return a declared range extended to the recipe's own value, which is known to work."""
    low, high = declared.low, declared.high
    if low is None or high is None or declared.step is not None or not isinstance(default, int | float):
        return declared, source
    if low <= default <= high or (declared.log and default <= 0):
        return declared, source
    wider = replace(declared, low=min(low, default), high=max(high, default))
    return wider, f"{source}, widened to the recipe's own {default:.12g}"


def find_parameter(recipe: Recipe, known: Declarations, name: str) -> tuple[str, TuneRange]:
    """Return the one name of the parameter that `name` means, and its table of [tune]: paths, and perhaps a range.

    Raises:
        UnknownNameError: None or several match; candidates are listed.
        CseError: It is a table, or must not be tuned.
    """
    if name in recipe.tune:
        return _tabled(recipe, name)
    if name in known:
        return _at_path(recipe, name)
    inside = [path for path in known if path.startswith(f"{name}.") and _may(path)]
    if inside:
        raise CseError(f"--param: '{name}' is a table, not a value", f"name one of its values: {shorten(inside)}")
    matching = [path for path in known if _is_ending(name, path)]
    allowed = [path for path in matching if _may(path)]
    if len(allowed) == 1 or (matching and not allowed):
        return _at_path(recipe, (allowed or matching)[0])
    if allowed:
        raise UnknownNameError(f"--param: '{name}' may be {len(allowed)} parameters", _choose_one(allowed, name))
    near = _nearest(recipe, known, name)
    raise UnknownNameError(
        f"--param: the recipe has no '{name}'.{near}",
        None if near else f"it can tune {shorten(tunable(recipe, known))}",
    )


def _tabled(recipe: Recipe, name: str) -> tuple[str, TuneRange]:
    table = recipe.tune[name]
    if not table.paths:
        raise CseError(f"[tune.{name}] names no `paths`, so there is nothing to tune", "write the dotted paths there")
    return name, table


def _at_path(recipe: Recipe, path: str) -> tuple[str, TuneRange]:
    """Return a path under its name in [tune] where it has one, so that one parameter has one name."""
    for start, why in _NEVER.items():
        if _is_below(path, start):
            raise CseError(f"--param: '{path}' is not tuned: {why}", "name a parameter of data, model or training")
    name = _name_in_tune(recipe, path)
    return (path, TuneRange(paths=(path,))) if name is None else _tabled(recipe, name)


def _name_in_tune(recipe: Recipe, path: str) -> str | None:
    return next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)


def _may(path: str) -> bool:
    return not any(_is_below(path, start) for start in _NEVER)


def _is_below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}.")


def _endings(path: str) -> list[str]:
    keys = path.split(".")
    return [".".join(keys[start:]) for start in range(len(keys))]


def _plain(name: str) -> str:
    """Return a name in which dots, underscores and hyphens are the same."""
    return name.replace(".", "_").replace("-", "_")


def _choose_one(paths: Sequence[str], name: str) -> str:
    quoted = ", ".join(f'"{path}"' for path in paths)
    return (
        f"name one: {shorten(paths)};\n    or let one value go to all of them, with a table in the recipe:\n"
        f"    [tune.{name.replace('.', '_')}]\n    paths = [{quoted}]"
    )


def _nearest(recipe: Recipe, known: Declarations, name: str) -> str:
    """Return a suggestion among names in [tune], paths, and endings of paths."""
    means: dict[str, str] = {}
    for path in filter(_may, known):
        called = _name_in_tune(recipe, path) or path
        means |= {_plain(ending): called for ending in _endings(path)} | {path: called}
    means |= {word: word for word in recipe.tune}
    meant = dict.fromkeys(means[word] for word in re.findall(r"'([^']+)'", suggestion(name, means)))
    return f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def tunable(recipe: Recipe, known: Declarations) -> list[str]:
    """Return what can be tuned without `--range`: names in [tune], then paths with a declared range, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and _may(path) and path not in inside}
    return [*recipe.tune, *sorted(ranges, key=lambda path: ranges[path].choices is not None)]


def shorten(names: Iterable[str]) -> str:
    """Return the first names with commas between them, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return f"{', '.join(every[:_LISTED])}{more}"
