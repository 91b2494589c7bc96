"""Values that a parameter can take: those that its declaration gives, and those of `--range` and `--choices`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cse_cli.core.formatting import UNSET
from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.keys import Keys, dotted
from cse_cli.recipe.overrides import parse_value
from cse_cli.recipe.paths import values
from cse_cli.recipe.schema import Recipe, Registered
from registry.errors import CseError

Value = str | int | float | bool
"""Value that a sampler can choose."""
Number = int | float
FORM = "a..b, a..b:log or a..b:step, for example 64..1024:32"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?")
_BARE_WORD = re.compile(r"(?<![\w.\"'-])(?!(?:true|false)\b)[A-Za-z_][\w-]*(?=\s*[,\]}])")
_AROUND = {"train.learning_rate": 10, "train.batch_size": 4}
"""Path → factor below and above the recipe's value. No fixed range suits every encoder."""


@dataclass(frozen=True)
class Range:
    """Values to search: a range whose `step` counts from `low`, or choices."""

    low: Number | None = None
    high: Number | None = None
    log: bool = False
    step: Number | None = None
    choices: tuple[Value, ...] | None = None

    @property
    def shown(self) -> str:
        """The values as text, such as "64 … 512 by 32"."""
        if self.choices is not None:
            return " | ".join(map(show_value, self.choices))
        spacing = " on a log scale" if self.log else ""
        if self.step is not None:
            spacing = f" by {self.step:.12g}"
        return f"{self.low:.6g} … {self.high:.6g}{spacing}"


def show_value(value: Value | None) -> str:
    """Return a value as text: numbers with four digits, a dash if it is unset."""
    if value is None or isinstance(value, bool):
        return UNSET if value is None else str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Declaration:
    """JSON types without null, and the default range, that a component or a section such as "[train]" declares."""

    owner: str
    types: frozenset[str]
    range: Range | None

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are accepted."""
        return "integer" in self.types and "number" not in self.types

    @property
    def numeric(self) -> bool:
        """Whether numbers are accepted."""
        return bool(self.types & {"integer", "number"})


def declarations(recipe: Recipe) -> dict[str, Declaration]:
    """Return dotted path → declaration of everything in a recipe that can be set."""
    found: dict[str, Declaration] = {}
    for section in ("data", "train", "evaluate"):
        found |= _declared((section,), type(getattr(recipe, section)), f"[{section}]")
    for placed in recipe.parts():
        # The part's own keys (views, queue) are the recipe's structure: they have no default range.
        for path, one in _declared(placed.keys, type(placed.part), "the recipe").items():
            if path.rpartition(".")[2] in placed.part.own:
                found[path] = replace(one, range=None)
        found |= _declared(placed.keys, placed.entry.parameters, placed.part.name)
    current = values(recipe)
    for path, value in current.items():  # views have no declaration
        kind = "string" if isinstance(value, str) else "any"
        found.setdefault(path, Declaration("the recipe", frozenset({kind}), None))
    for path, factor in _AROUND.items():
        around = _around(current[path], factor, whole=found[path].whole)
        found[path] = replace(found[path], range=around)
    return found


def _declared(keys: Keys, model: type[BaseModel], owner: str) -> dict[str, Declaration]:
    return {dotted((*keys, name)): one for name, one in _fields(model, owner).items()}


@cache  # a schema takes 7 ms, and a search needs about thirty again and again
def _fields(model: type[BaseModel], owner: str) -> dict[str, Declaration]:
    """Return name → declaration of every field."""
    schema = model.model_json_schema()["properties"]
    found = {}
    for name, field in model.model_fields.items():
        types = frozenset(_types(schema[field.alias or name]))
        found[name] = Declaration(owner, types, _default_range(field, types))
    return found


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    for choice in schema.get("anyOf", ()):
        yield from _types(choice)
    if schema.get("type", "null") != "null":
        yield str(schema["type"])


def _default_range(field: FieldInfo, types: frozenset[str]) -> Range | None:
    if (tune := tune_of(field)) is not None:
        return Range(tune.low, tune.high, tune.log, tune.step)
    if options := tuple(dict.fromkeys((*_options(field.annotation), *_registered(field.metadata)))):
        return Range(choices=options) if len(options) > 1 else None
    return Range(choices=(False, True)) if types == {"boolean"} else None


def _registered(marks: Sequence[Any]) -> list[str]:
    return [name for mark in marks if isinstance(mark, Registered) for name in mark.registry.names()]


def _options(hint: Any) -> Iterator[Value]:
    if get_origin(hint) is Literal:
        yield from (option for option in get_args(hint) if option is not None)
    elif get_origin(hint) is Annotated:
        yield from _registered(get_args(hint)[1:])
    else:
        for inner in get_args(hint):
            yield from _options(inner)


def _around(value: float, factor: int, *, whole: bool) -> Range:
    low, high = Decimal(str(value)) / factor, Decimal(str(value)) * factor
    return Range(max(2, int(low)) if whole else float(low), float(high), log=True)


def parse_range(text: str) -> Range:
    """Return the range of a `--range` string."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise CseError(f"--range: '{text}' is not a range", f"write {FORM}", code="tune.not_a_range")
    low, high, spacing = float(match[1]), float(match[2]), match[3]
    step = None if spacing in (None, "log") else float(spacing)
    return check_range(Range(low, high, spacing == "log", step), f"--range {text}")


def parse_choices(text: str) -> Range:
    """Return the values of a `--choices` string. Tables and arrays are errors."""
    choices = split_values(text)
    if any(choice == "" or not isinstance(choice, Value) for choice in choices):
        raise CseError(
            f"--choices: '{text}' contains something other than single values",
            "write 64,128,256 or cls,mean or true,false",
            code="tune.not_choices",
        )
    return check_range(Range(choices=tuple(choices)), f"--choices {text}")


def split_values(text: str) -> list[Any]:
    """Return the TOML values of a list with or without brackets. A word that is not TOML is a string."""
    array = text.strip() if text.strip().startswith("[") else f"[{text.strip()}]"
    for written in (array, _BARE_WORD.sub(r'"\g<0>"', array)):
        if isinstance(found := parse_value(written), list):
            return found
    return [parse_value(part.strip()) for part in array.removeprefix("[").removesuffix("]").split(",")]


def check_range(given: Range, where: str) -> Range:
    """Return a range that can be searched, with its end moved down to a step. `where` is its option or table."""
    if given.choices is not None:
        _check_choices(given.choices, where)
        return given
    if given.low is None or given.high is None:
        raise CseError(f"{where}: one end is missing", f"write {FORM}", code="tune.open_range")
    low, high, step = given.low, given.high, given.step
    if low >= high:
        action = f"write {high:.12g}..{low:.12g}" if low > high else "set a single value with --set"
        raise CseError(f"{where}: {low:.12g} is not less than {high:.12g}", action, code="tune.empty_range")
    if given.log and low <= 0:
        raise CseError(f"{where}: {low:.12g} is not greater than 0", "remove :log", code="tune.log_of_zero")
    if given.log and step is not None:
        raise CseError(f"{where}: a log scale has no steps", "remove log or step", code="tune.log_with_step")
    return given if step is None else replace(given, high=_last_step(low, high, step, where))


def _last_step(low: float, high: float, step: float, where: str) -> float:
    """Return the largest value on a step, with decimals because 0.3 is not a multiple of 0.1 in binary."""
    start, width, spacing = Decimal(str(low)), Decimal(str(high)) - Decimal(str(low)), Decimal(str(step))
    if not 0 < spacing <= width:
        message = f"{where}: step {step:.12g} is not between 0 and the width of the range"
        raise CseError(message, f"use a step of at most {float(width):.12g}", code="tune.bad_step")
    return float(start + width // spacing * spacing)


def _check_choices(choices: Sequence[Value], where: str) -> None:
    if len({(type(choice), choice) for choice in choices}) < max(2, len(choices)):
        what = "only one value" if len(choices) < 2 else "the same value twice"
        action = "give at least two different values, separated by commas"
        raise CseError(f"{where}: {what}", action, code="tune.too_few_choices")
