"""What is searched: every parameter with its range, checked against the recipe before anything runs.

What `--param NAME` means: a name in [tune], a dotted path, or the unique ending of one.
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
from cse_cli.tuning.ranges import FORM, Declared, Range, Value, checked, count, declarations, parse_choices, parse_range
from registry.errors import CseError, UnknownNameError, suggestion


@dataclass(frozen=True)
class Knob:
    """One parameter that is searched.

    Args:
        name: What [tune] calls it, else its dotted path; unique in the space.
        paths: Dotted paths of the recipe that take the value.
        low: Smallest value; None with choices.
        high: Largest, on a step where there are steps.
        log: Whether to search on a logarithmic scale.
        step: Spacing from `low` on.
        whole: Whether it takes whole numbers only.
        choices: Values instead of a range; `default` is among them.
        default: The recipe's own value, None where it is unset or differs between the paths. It may lie beside the
            range or its steps: the first trial has it all the same.
        source: Who gave the range.
    """

    name: str
    paths: tuple[str, ...]
    low: float | None
    high: float | None
    log: bool
    step: float | None
    whole: bool
    choices: tuple[Value, ...] | None
    default: Value | None
    source: str

    def overrides(self, value: Value) -> list[str]:
        """Return the `--set` texts that give the recipe a value."""
        return [f"{path}={toml(self.typed(value))}" for path in self.paths]

    def typed(self, value: Value) -> Value:
        """Return a value as the recipe has it: a whole number without a point."""
        whole = self.whole and isinstance(value, float) and not isinstance(value, bool)
        return round(float(value)) if whole else value

    def identity(self) -> dict[str, Any]:
        """Return what makes two searches the same search, JSON-ready."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("default", "source")}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @property
    def inside(self) -> bool:
        """Whether the recipe's own value is one that the search can find."""
        if self.choices is not None or not isinstance(self.default, int | float):
            return self.default is not None
        if self.low is None or self.high is None or not self.low <= self.default <= self.high:
            return False
        return self.step is None or abs((self.default - self.low) / self.step % 1.0) < 1e-9


def toml(value: Value) -> str:
    """Return a value as TOML writes it."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Asked:
    """What a command line asks for.

    Args:
        names: Of `--param`, several with commas between them allowed.
        ranges: Of `--range`; each begins with "name=" where several parameters are searched.
        choices: Of `--choices`, likewise.
    """

    names: Sequence[str] = ()
    ranges: Sequence[str] = ()
    choices: Sequence[str] = ()


def space(loaded: LoadedRecipe, asked: Asked) -> tuple[Knob, ...]:
    """Return the parameters to search; nothing is built.

    Raises:
        CseError: Nothing is asked for, a name is unknown or may be several, a range is missing, empty or outside what
            the parameter takes.
    """
    known = declarations(loaded.recipe)
    wanted = _wanted(loaded, known, asked)
    given = _given(loaded, known, asked, wanted)
    knobs = tuple(_knob(loaded, known, named, given.get(named.name)) for named in wanted)
    seen: dict[str, str] = {}
    for knob in knobs:
        for path in knob.paths:
            if path in seen:
                raise CseError(f"--param: '{knob.name}' and '{seen[path]}' both set {path}", "leave out one of them")
            seen[path] = knob.name
    return knobs


def points(knobs: Sequence[Knob]) -> int | None:
    """Return how many different trials a space has; None where it is continuous."""
    return count(Range(k.low, k.high, k.log, _spacing(k), k.choices) for k in knobs)


def _spacing(knob: Knob) -> float | None:
    return 1.0 if knob.whole and knob.step is None else knob.step


def _wanted(loaded: LoadedRecipe, known: Mapping[str, Declared], asked: Asked) -> list[Named]:
    typed = [name.strip() for text in asked.names for name in text.split(",") if name.strip()]
    typed += [text.partition("=")[0].strip() for text in (*asked.ranges, *asked.choices) if "=" in text]
    if not typed:
        can = listed(tunable(loaded.recipe, known)) or "nothing without --range"
        raise CseError("what is to be tuned?", f"name it with --param; {loaded.name} has {can}")
    found: dict[str, Named] = {}
    for name in typed:
        named = find(loaded.recipe, known, name)
        found.setdefault(named.name, named)
    return list(found.values())


Given = dict[str, tuple[Range, str]]
"""Name → range, and the option it came with as typed."""


def _given(loaded: LoadedRecipe, known: Mapping[str, Declared], asked: Asked, wanted: Sequence[Named]) -> Given:
    given: Given = {}
    for option, texts, parse in (("--range", asked.ranges, parse_range), ("--choices", asked.choices, parse_choices)):
        for text in texts:
            name, equals, values = text.partition("=")
            if not equals:
                name, values = _only(option, text, wanted), text
            called = find(loaded.recipe, known, name.strip()).name
            if called in given:
                raise CseError(f"{option} {text}: '{called}' has a range already", "give each parameter one")
            given[called] = (parse(values), f"{option} {values}")
    return given


def _only(option: str, text: str, wanted: Sequence[Named]) -> str:
    if len(wanted) == 1:
        return wanted[0].name
    listed = " or ".join(f"{option} {named.name}={text}" for named in wanted[:2])
    raise CseError(f"{option} {text}: which of {len(wanted)} parameters is it for?", f"write {listed}")


def _knob(loaded: LoadedRecipe, known: Mapping[str, Declared], named: Named, given: tuple[Range, str] | None) -> Knob:
    own = values(loaded.recipe)
    first = own[named.paths[0]]
    default = first if all(own[path] == first for path in named.paths) else None
    declared = known[named.paths[0]]
    whole = any(known[path].whole for path in named.paths)
    if isinstance(first, Mapping | list | tuple):
        raise CseError(f"--param: {named.name} is {_noun(first)}, which has no single value to search", _OTHERS)
    found, source = given or _unasked(named, declared, default)
    found = _fitting(found, named, declared, source)
    if whole and found.choices is None:
        _demand_whole(found, named.name, source)
    if found.choices is not None and default is not None and default not in found.choices:
        found = replace(found, choices=(default, *found.choices))
    low, high, step = (_number(end, whole) for end in (found.low, found.high, found.step))
    knob = Knob(named.name, named.paths, low, high, found.log, step, whole, found.choices, default, source)
    _demand_valid(loaded, knob)
    return knob


def _number(value: float | None, whole: bool) -> float | None:
    return int(value) if whole and value is not None else value


_OTHERS = "name a number, a switch or a choice; `cse show COMPONENT` lists them"


def _noun(value: object) -> str:
    return "a table" if isinstance(value, Mapping) else "an array"


def _unasked(named: Named, declared: Declared, default: Value | None) -> tuple[Range, str]:
    """Return the range of [tune], else the declared one."""
    if named.table is not None and (own := _of_table(named.name, named.table)) is not None:
        return own, "[tune] of the recipe"
    if declared.range is not None:
        return _widened(declared.range, default, declared)
    if declared.numeric:
        what, how = "no range is declared for it", f"--range {FORM}"
    else:
        what, how = "any text may stand there", "--choices with the texts to try, commas between them"
    raise CseError(f"--param: {named.name} needs a range: {what}", f"add {how}")


def _of_table(name: str, table: TuneRange) -> Range | None:
    where = f"[tune.{name}]"
    if table.choices is not None:
        return checked(Range(choices=table.choices), where)
    if table.low is None and table.high is None:
        return None
    return checked(Range(table.low, table.high, table.log, table.step), where)


def _widened(declared: Range, default: Value | None, by: Declared) -> tuple[Range, str]:
    """Return a declared range that reaches to the recipe's own value, as that is known to work."""
    source = f"declared by {by.owner}"
    if declared.low is None or declared.high is None or declared.step is not None:
        return declared, source
    if not isinstance(default, int | float) or declared.low <= default <= declared.high:
        return declared, source
    if declared.log and default <= 0:
        return declared, source
    wider = replace(declared, low=min(declared.low, default), high=max(declared.high, default))
    return wider, f"{source}, widened to the recipe's own {default:.12g}"


def _fitting(found: Range, named: Named, declared: Declared, source: str) -> Range:
    """Return the range in the parameter's own type: choices that are numbers where it takes only text become text."""
    if found.choices is None:
        if not declared.numeric:
            options = declared.range.choices if declared.range is not None else None
            listed = f" {','.join(map(_plain, options))}" if options else ""
            raise CseError(
                f"{source}: {named.name} is no number, so it has no range", f"use --choices{listed or ' a,b'}"
            )
        return found
    if declared.types == {"string"}:
        return replace(found, choices=tuple(str(choice) for choice in found.choices))
    return found


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _demand_whole(found: Range, name: str, source: str) -> None:
    for value in (found.low, found.high, found.step):
        if value is not None and value != int(value):
            raise CseError(
                f"{source}: {name} takes whole numbers, not {value:.12g}", "give whole ends and a whole step"
            )


def _demand_valid(loaded: LoadedRecipe, knob: Knob) -> None:
    """Put every choice, or both ends, into the recipe: what it refuses, a trial must not ask for."""
    tried = knob.choices if knob.choices is not None else (knob.low, knob.high)
    for value in tried:
        if value is None:
            continue
        changed = loaded
        try:
            for path in knob.paths:
                changed = with_value(changed, path, knob.typed(value))
        except RecipeError as error:
            raise CseError(
                f"{knob.source}: {knob.name} cannot be {toml(knob.typed(value))}: {error.problems[0].message}",
                "`cse show COMPONENT` tells what a parameter takes",
            ) from error


_NEVER = {
    "evaluate": "it changes how models are scored, so that trials could not be compared",
    "evaluators": "it changes how models are scored, so that trials could not be compared",
    "train.seed": "the best of several seeds is luck, not a better recipe; --seeds averages over them",
}
_SHOWN = 12


@dataclass(frozen=True)
class Named:
    """A parameter that was asked for.

    Args:
        name: One word for it, the same however it was asked for.
        paths: Dotted paths that take its value.
        table: What [tune] says of it.
    """

    name: str
    paths: tuple[str, ...]
    table: TuneRange | None = None


def find(recipe: Recipe, known: Mapping[str, Declared], name: str) -> Named:
    """Return the parameter a name means.

    Args:
        recipe: Whose parameters.
        known: Its declarations by dotted path.
        name: As typed.

    Raises:
        UnknownNameError: None or several are called so; candidates are listed.
        CseError: It is a table, or must not be tuned.
    """
    if name in recipe.tune:
        return _from_table(name, recipe.tune[name])
    if name in known:
        return _from_path(recipe, name)
    inside = [path for path in known if path.startswith(f"{name}.") and _may(path)]
    if inside:
        raise CseError(f"--param: '{name}' is a table, not a value", f"name one of its values: {listed(inside)}")
    endings = [path for path in known if _ends(path, name)]
    allowed = [path for path in endings if _may(path)]
    if len(allowed) == 1 or (endings and not allowed):
        return _from_path(recipe, (allowed or endings)[0])
    if allowed:
        raise UnknownNameError(f"--param: '{name}' may be {len(allowed)} parameters", _which(allowed, name))
    near = _near(recipe, known, name)
    raise UnknownNameError(
        f"--param: the recipe has no '{name}'.{near}",
        None if near else f"it can tune {listed(tunable(recipe, known))}",
    )


def _from_table(name: str, table: TuneRange) -> Named:
    if not table.paths:
        raise CseError(f"[tune.{name}] names no `paths`, so there is nothing to tune", "write the dotted paths there")
    return Named(name, table.paths, table)


def _from_path(recipe: Recipe, path: str) -> Named:
    """Return a path under the name [tune] has for it, so that one parameter has one name."""
    for start, why in _NEVER.items():
        if _below(path, start):
            raise CseError(f"--param: '{path}' is not tuned: {why}", "name a parameter of data, model or training")
    called = next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)
    return Named(path, (path,)) if called is None else _from_table(called, recipe.tune[called])


def _may(path: str) -> bool:
    return not any(_below(path, start) for start in _NEVER)


def _below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}.")


def _ends(path: str, name: str) -> bool:
    """Tell whether a path ends in these whole keys; dots, underscores and hyphens are one and the same."""
    keys = path.split(".")
    return any(_plain_names(".".join(keys[start:])) == _plain_names(name) for start in range(len(keys)))


def _which(paths: list[str], name: str) -> str:
    together = ", ".join(f'"{path}"' for path in paths)
    return (
        f"name one: {listed(paths)};\n    or let one value go to all of them, with a table in the recipe:\n"
        f"    [tune.{name.replace('.', '_')}]\n    paths = [{together}]"
    )


def _near(recipe: Recipe, known: Mapping[str, Declared], name: str) -> str:
    """Return what was meant, told by what people type: names in [tune], paths, and endings of these."""
    means: dict[str, str] = {}
    for path in filter(_may, known):
        called = next((word for word, table in recipe.tune.items() if table.paths == (path,)), path)
        means |= {_plain_names(ending): called for ending in _endings(path)} | {path: called}
    means |= {word: word for word in recipe.tune}
    words = re.findall(r"'([^']+)'", suggestion(name, means))
    meant = list(dict.fromkeys(means[word] for word in words))
    return f" Did you mean {' or '.join(repr(one) for one in meant)}?" if meant else ""


def _endings(path: str) -> list[str]:
    keys = path.split(".")
    return [".".join(keys[start:]) for start in range(len(keys))]


def _plain_names(ending: str) -> str:
    return ending.replace(".", "_").replace("-", "_")


def tunable(recipe: Recipe, known: Mapping[str, Declared]) -> list[str]:
    """Return what can be tuned without `--range`: names in [tune], then paths with a declared range, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and _may(path) and path not in inside}
    return [*recipe.tune, *sorted(ranges, key=lambda path: ranges[path].choices is not None)]


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, the first so many."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"
