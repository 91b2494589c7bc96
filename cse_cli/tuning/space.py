"""The searched parameters: which ones `--param NAME` means, and the range of each, checked against the recipe.

A name is a key of [tune], a dotted path, or an ending of one path only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, with_value
from cse_cli.recipe.paths import values
from cse_cli.recipe.schema import Recipe, TuneRange
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
    "evaluate": "it changes how models are scored, so that trials could not be compared",
    "evaluators": "it changes how models are scored, so that trials could not be compared",
    "train.seed": "the best of several seeds is luck, not a better recipe; --seeds averages over them",
}
_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class Parameter(Range):
    """One searched parameter: its range, and where its value goes in the recipe.

    Args:
        name: Its key in [tune], else its dotted path; unique in the space.
        paths: Dotted paths of the recipe that take the value.
        whole: Whether it takes whole numbers only.
        default: The recipe's own value, one of `choices` where there are any; None where it is unset or differs
            between the paths. It may lie outside the range: the first trial has it all the same.
        source: Who gave the range.
    """

    name: str
    paths: tuple[str, ...]
    whole: bool = False
    default: Value | None = None
    source: str = ""

    def overrides(self, value: Value) -> list[str]:
        """Return the `--set` texts that give the recipe a value."""
        return [f"{path}={_toml(self._typed(value))}" for path in self.paths]

    def _typed(self, value: Value) -> Value:
        return round(value) if self.whole and isinstance(value, float) else value

    def identity(self) -> dict[str, Any]:
        """Return what makes two searches the same search, JSON-ready."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("default", "source")}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @property
    def holds_default(self) -> bool:
        """Whether the range has the recipe's own value."""
        if self.choices is not None or not isinstance(self.default, int | float):
            return self.default is not None
        if self.low is None or self.high is None or not self.low <= self.default <= self.high:
            return False
        return self.step is None or abs((self.default - self.low) / self.step % 1.0) < 1e-9

    def check_values(self, loaded: LoadedRecipe) -> None:
        """Put every choice, or both ends of the range, into the recipe.

        Raises:
            CseError: The recipe refuses one of them.
        """
        for value in self.choices if self.choices is not None else (self.low, self.high):
            if value is None:
                continue
            changed = loaded
            try:
                for path in self.paths:
                    changed = with_value(changed, path, self._typed(value))
            except RecipeError as error:
                raise CseError(
                    f"{self.source}: {self.name} cannot be {_toml(self._typed(value))}: {error.problems[0].message}",
                    "`cse show COMPONENT` tells what a parameter takes",
                ) from error


def overrides_of(parameters: Iterable[Parameter], values: Mapping[str, Value | None]) -> list[str]:
    """Return the `--set` texts that give a recipe the values of a trial; what has none stays as it is."""
    given = ((parameter, values.get(parameter.name)) for parameter in parameters)
    return [text for parameter, value in given if value is not None for text in parameter.overrides(value)]


def _toml(value: Value) -> str:
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


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
    tables = dict(find_parameter(loaded.recipe, known, name) for name in typed)
    given = _given_ranges(loaded, known, list(tables), ranges, choices)
    parameters = tuple(_parameter(loaded, known, name, table, given.get(name)) for name, table in tables.items())
    owner: dict[str, str] = {}
    for parameter in parameters:
        for path in parameter.paths:
            if path in owner:
                raise CseError(
                    f"--param: '{parameter.name}' and '{owner[path]}' both set {path}", "leave out one of them"
                )
            owner[path] = parameter.name
    return parameters


def _given_ranges(
    loaded: LoadedRecipe, known: Declarations, names: Sequence[str], ranges: Sequence[str], choices: Sequence[str]
) -> dict[str, tuple[Range, str]]:
    """Return name → range, and the option as typed."""
    given: dict[str, tuple[Range, str]] = {}
    for option, texts, parse in (("--range", ranges, parse_range), ("--choices", choices, parse_choices)):
        for text in texts:
            name, equals, values = text.partition("=")
            if not equals:
                if len(names) > 1:
                    forms = " or ".join(f"{option} {name}={text}" for name in names[:2])
                    raise CseError(f"{option} {text}: which of {len(names)} parameters is it for?", f"write {forms}")
                name, values = names[0], text
            name, _ = find_parameter(loaded.recipe, known, name.strip())
            if name in given:
                raise CseError(f"{option} {text}: '{name}' has a range already", "give each parameter one")
            given[name] = (parse(values), f"{option} {values}")
    return given


def _parameter(
    loaded: LoadedRecipe, known: Declarations, name: str, table: TuneRange, given: tuple[Range, str] | None
) -> Parameter:
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
    return parameter


def _whole(value: Number | None, name: str, source: str) -> int | None:
    if value is not None and value != int(value):
        raise CseError(f"{source}: {name} takes whole numbers, not {value:.12g}", "give whole ends and a whole step")
    return None if value is None else int(value)


def _default_range(name: str, table: TuneRange, declared: Declaration, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one, and where it comes from."""
    own = Range(table.low, table.high, table.log, table.step, table.choices)
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
    matching = [path for path in known if _plain(name) in map(_plain, _endings(path))]
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
