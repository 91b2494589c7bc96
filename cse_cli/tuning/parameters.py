"""The values of searched parameters: what options, [tune] and components declare, and the settings of a trial."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

from pydantic import BaseModel

from cse_cli.core.formatting import UNSET
from cse_cli.recipe.keys import Keys, dotted, is_list_of_parts
from cse_cli.recipe.load import LoadedRecipe, changed
from cse_cli.recipe.overrides import Override, parse_value
from cse_cli.recipe.problems import RecipeError
from cse_cli.recipe.schema import Recipe, tune_of
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
_REMOVE = "remove"
"""Key of a chosen table: the parameters of the recipe's component that the choice does without."""


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

    def checked(self, where: str) -> Range:
        """Return the values with the end moved down to a step, or refuse them. `where` is their option or table."""
        if (choices := self.choices) is not None:
            if len({(type(choice), choice) for choice in choices}) < max(2, len(choices)):
                what = "only one value" if len(choices) < 2 else "the same value twice"
                action = "give at least two different values, separated by commas"
                raise CseError(f"{where}: {what}", action, code="tune.too_few_choices")
            return self
        if self.low is None or self.high is None:
            raise CseError(f"{where}: one end is missing", f"write {FORM}", code="tune.open_range")
        low, high, step = self.low, self.high, self.step
        if low >= high:
            action = f"write {high:.12g}..{low:.12g}" if low > high else "set a single value with --set"
            raise CseError(f"{where}: {low:.12g} is not less than {high:.12g}", action, code="tune.empty_range")
        if self.log and low <= 0:
            raise CseError(f"{where}: {low:.12g} is not greater than 0", "remove :log", code="tune.log_of_zero")
        if self.log and step is not None:
            raise CseError(f"{where}: a log scale has no steps", "remove log or step", code="tune.log_with_step")
        if step is None:
            return self
        # Decimals, because 0.3 is not a multiple of 0.1 in binary.
        start, width, spacing = Decimal(str(low)), Decimal(str(high)) - Decimal(str(low)), Decimal(str(step))
        if not 0 < spacing <= width:
            message = f"{where}: step {step:.12g} is not between 0 and the width of the range"
            raise CseError(message, f"use a step of at most {float(width):.12g}", code="tune.bad_step")
        return replace(self, high=float(start + width // spacing * spacing))


def parse_range(text: str) -> Range:
    """Return the range of a `--range` string."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise CseError(f"--range: '{text}' is not a range", f"write {FORM}", code="tune.not_a_range")
    low, high, spacing = float(match[1]), float(match[2]), match[3]
    step = None if spacing in (None, "log") else float(spacing)
    return Range(low, high, spacing == "log", step).checked(f"--range {text}")


def parse_choices(text: str) -> Range:
    """Return the values of a `--choices` string. Tables and arrays are errors."""
    choices = split_values(text)
    if any(choice == "" or not isinstance(choice, Value) for choice in choices):
        raise CseError(
            f"--choices: '{text}' contains something other than single values",
            "write 64,128,256 or cls,mean or true,false",
            code="tune.not_choices",
        )
    return Range(choices=tuple(choices)).checked(f"--choices {text}")


def split_values(text: str) -> list[Any]:
    """Return the TOML values of a list with or without brackets. A word that is not TOML is a string."""
    array = text.strip() if text.strip().startswith("[") else f"[{text.strip()}]"
    for written in (array, _BARE_WORD.sub(r'"\g<0>"', array)):
        if isinstance(found := parse_value(written), list):
            return found
    return [parse_value(part.strip()) for part in array.removeprefix("[").removesuffix("]").split(",")]


# What the recipe and its components declare.


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
    current = recipe.values()
    for path, value in current.items():  # views have no declaration
        kind = "string" if isinstance(value, str) else "any"
        found.setdefault(path, Declaration("the recipe", frozenset({kind}), None))
    for path, factor in _AROUND.items():
        value = Decimal(str(current[path]))
        low = max(2, int(value / factor)) if found[path].whole else float(value / factor)
        found[path] = replace(found[path], range=Range(low, float(value * factor), log=True))
    return found


def _declared(keys: Keys, model: type[BaseModel], owner: str) -> dict[str, Declaration]:
    return {dotted((*keys, name)): one for name, one in _fields(model, owner).items()}


@cache  # a schema takes 7 ms, and a search needs about thirty again and again
def _fields(model: type[BaseModel], owner: str) -> dict[str, Declaration]:
    schema = model.model_json_schema()["properties"]
    found = {}
    for name, field in model.model_fields.items():
        whole = schema[field.alias or name]
        kinds = [one for one in whole.get("anyOf", [whole]) if one.get("type") != "null"]
        types = frozenset(str(one["type"]) for one in kinds if "type" in one)
        named = [option for one in kinds for option in one.get("enum", [one.get("const")])]
        options = tuple(dict.fromkeys(option for option in named if option is not None))
        default = Range(choices=options) if len(options) > 1 else None
        if (tune := tune_of(field)) is not None:
            default = Range(tune.low, tune.high, tune.log, tune.step)
        elif types == {"boolean"} and not options:
            default = Range(choices=(False, True))
        found[name] = Declaration(owner, types, default)
    return found


# A parameter with its values.


@dataclass(frozen=True, kw_only=True)
class Parameter(Range):
    """A searched parameter, whose values go to `paths` of the recipe.

    Args:
        name: Unique name: its key in [tune] or its dotted path. Inside a chosen part, the names of part, component and
            parameter, such as "queue.fifo.length".
        default: The recipe's value, or None if it is unset or differs between the paths. The first trial has it, even
            if it is outside the range.
        source: Origin of the range, for messages.
        part: Whether the choices are parts: names of components, TOML tables, or False to omit the part.
        drops: Entries of [tune] that belong to the recipe's part and are removed with it.
        when: Name of a part, and the choices of it that have the parameter. None if every trial has it.
    """

    name: str
    paths: tuple[str, ...]
    whole: bool = False
    default: Value | None = None
    source: str = ""
    part: bool = False
    drops: tuple[str, ...] = ()
    when: tuple[str, tuple[Value, ...]] | None = None

    def settings(self, value: Value) -> tuple[list[Override], list[str]]:
        """Return the overrides and `--unset` keys that give the recipe a value."""
        if not self.part:
            typed = round(value) if self.whole and isinstance(value, float) else value
            return [Override.of(path, typed) for path in self.paths], []
        if value == self.default:
            return [], []
        (place,), drops = self.paths, [f"tune.{name}" for name in self.drops]
        if is_list_of_parts(place):
            return [Override.of(place, tables_of(value))], drops
        if value is False:
            return [], [place, *drops]
        (table,) = tables_of(value)
        given = [Override.of(f"{place}.{key}", inner) for key, inner in table.items() if key != _REMOVE]
        return given, [*(f"{place}.{key}" for key in table.get(_REMOVE, ())), *drops]

    def exists(self, values: Mapping[str, Any]) -> bool:
        """Return whether a trial with these parts has the parameter."""
        return self.when is None or values.get(self.when[0]) in self.when[1]

    def identity(self) -> dict[str, Any]:
        """Return the properties that make two searches the same search, as JSON values."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("default", "source", "drops")}
        return dict(json.loads(json.dumps(plain)))

    @property
    def holds_default(self) -> bool:
        """Whether the range contains the recipe's value."""
        if self.choices is not None or not isinstance(self.default, int | float):
            return self.default is not None
        if self.low is None or self.high is None or not self.low <= self.default <= self.high:
            return False
        return self.step is None or abs((self.default - self.low) / self.step % 1.0) < 1e-9


def tables_of(choice: Value) -> list[dict[str, Any]]:
    """Return the tables of a chosen part. Empty if the choice omits it."""
    if not isinstance(choice, str):
        return []
    chosen = parse_value(choice)
    return chosen if isinstance(chosen, list) else [chosen if isinstance(chosen, dict) else {"name": chosen}]


def settings_of(
    parameters: Collection[Parameter], values: Mapping[str, Value | None]
) -> tuple[list[Override], list[str]]:
    """Return the overrides and `--unset` keys of a trial's values. Parameters without a value stay unchanged."""
    given = [(one, value) for one in parameters if (value := values.get(one.name)) is not None]
    found = [one.settings(value) for one, value in given]
    removals = dict.fromkeys(key for _, keys in found for key in keys)
    return [override for overrides, _ in found for override in overrides], list(removals)


def with_parts(loaded: LoadedRecipe, parts: Collection[Parameter], values: Mapping[str, Any]) -> LoadedRecipe:
    """Return the recipe with the parts of a trial. Parts that are not compatible are a `RecipeError`."""
    return changed(loaded, *settings_of(parts, values))


def reason_of(error: RecipeError) -> str:
    """Return in one line why parts are not compatible."""
    return "; ".join(f"{one.keys}: {one.message}" if one.keys else one.message for one in error.problems)


def show_value(value: Value | None) -> str:
    """Return a value as text: numbers with four digits, a dash if it is unset."""
    if value is None or isinstance(value, bool):
        return UNSET if value is None else str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
