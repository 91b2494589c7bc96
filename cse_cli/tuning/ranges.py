"""The values a parameter can take: as its declaration says, and as `--range` and `--choices` give them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.errors import Keys, dotted
from cse_cli.recipe.paths import entry, parts, values
from cse_cli.recipe.schema import Recipe
from registry.errors import CseError

Value = str | int | float | bool
"""What a sampler can choose."""
Number = int | float
FORM = "a..b, a..b:log or a..b:step, such as 64..1024:32"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?")
_AROUND = {"train.learning_rate": 10, "train.batch_size": 4}
"""Path → factor below and above the recipe's own value: no fixed range suits every encoder."""


@dataclass(frozen=True)
class Range:
    """Values to search.

    Args:
        low: Smallest; None with choices.
        high: Largest.
        step: Spacing from `low` on.
        choices: Values instead of a range.
    """

    low: Number | None = None
    high: Number | None = None
    log: bool = False
    step: Number | None = None
    choices: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class Declaration:
    """What the signature or section that declares a parameter says of its values.

    Args:
        owner: The component or section, such as "hippocampus" or "[train]".
        types: JSON types it takes, null left out.
        range: Searched by default.
    """

    owner: str
    types: frozenset[str]
    range: Range | None

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are taken."""
        return "integer" in self.types and "number" not in self.types

    @property
    def numeric(self) -> bool:
        """Whether numbers are taken."""
        return bool(self.types & {"integer", "number"})


def declarations(recipe: Recipe) -> dict[str, Declaration]:
    """Return dotted path → declaration of everything in a recipe that can be set."""
    found: dict[str, Declaration] = {}
    for section in ("data", "train", "evaluate"):
        found |= _declared((section,), type(getattr(recipe, section)), f"[{section}]")
    for keys, part in parts(recipe):
        own = {key for key, _ in part if key not in ("name", "params", "heads")}
        # The part's own keys (views, queue) are the recipe's structure: they have no default range.
        for path, one in _declared(keys, type(part), "the recipe"):
            if path.rpartition(".")[2] in own:
                found[path] = replace(one, range=None)
        found |= _declared(keys, entry(keys, part).parameters, part.name)
    for path, value in values(recipe).items():  # tables without a declaration of their own: views
        found.setdefault(
            path, Declaration("the recipe", frozenset({"string" if isinstance(value, str) else "any"}), None)
        )
    for path, factor in _AROUND.items():
        section, key = path.split(".")
        own, whole = getattr(getattr(recipe, section), key), found[path].whole
        found[path] = replace(found[path], range=_around(own, factor, whole=whole))
    return found


def _declared(keys: Keys, model: type[BaseModel], owner: str) -> Iterator[tuple[str, Declaration]]:
    """Yield dotted path and declaration of every field of a model."""
    for name, types, range_ in _fields(model):
        yield dotted((*keys, name)), Declaration(owner, types, range_)


@cache  # a schema takes 7 ms, and a search asks for some thirty again and again
def _fields(model: type[BaseModel]) -> list[tuple[str, frozenset[str], Range | None]]:
    """Return name, types and default range of every field of a model."""
    schema = model.model_json_schema()["properties"]
    found = []
    for name, field in model.model_fields.items():
        types = frozenset(_types(schema[field.alias or name]))
        found.append((name, types, _default_range(field, types)))
    return found


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for choice in schema["anyOf"]:
            yield from _types(choice)
    elif "type" in schema and schema["type"] != "null":
        yield str(schema["type"])


def _default_range(field: FieldInfo, types: frozenset[str]) -> Range | None:
    if (tune := tune_of(field)) is not None:
        return Range(tune.low, tune.high, tune.log, tune.step)
    if options := tuple(dict.fromkeys(_options(field.annotation))):
        return Range(choices=options) if len(options) > 1 else None
    return Range(choices=(False, True)) if types == {"boolean"} else None


def _options(hint: Any) -> Iterator[Value]:
    if get_origin(hint) is Literal:
        yield from (option for option in get_args(hint) if option is not None)
    else:
        for inner in get_args(hint):
            yield from _options(inner)


def _around(value: float, factor: int, *, whole: bool) -> Range:
    low, high = Decimal(str(value)) / factor, Decimal(str(value)) * factor
    return Range(max(2, int(low)) if whole else float(low), float(high), log=True)


def parse_range(text: str) -> Range:
    """Return the range that `--range` gives.

    Raises:
        CseError: It has another form, or holds no value.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise CseError(f"--range: '{text}' is not a range", f"write {FORM}")
    low, high = float(match[1]), float(match[2])
    log = match[3] == "log"
    return check_range(Range(low, high, log, None if log or match[3] is None else float(match[3])), f"--range {text}")


def check_range(asked: Range, where: str) -> Range:
    """Return a range that can be searched, its end moved to a step.

    Args:
        asked: As given.
        where: The option or table it comes from, for messages.

    Raises:
        CseError: It holds fewer than two values, or its parts contradict each other.
    """
    if asked.choices is not None:
        _check_choices(asked.choices, where)
        return asked
    if asked.low is None or asked.high is None:
        raise CseError(f"{where}: a range needs both ends", f"write {FORM}")
    low, high, step = asked.low, asked.high, asked.step
    if low >= high:
        action = f"did you mean {high:.12g}..{low:.12g}?" if low > high else "`--set` gives a parameter one value"
        raise CseError(f"{where}: the range is empty, as {low:.12g} is not less than {high:.12g}", action)
    if asked.log and low <= 0:
        raise CseError(f"{where}: {low:.12g} cannot be on a log scale", "begin above 0, or leave out :log")
    if asked.log and step is not None:
        raise CseError(f"{where}: a log scale has no steps", "leave out one of the two")
    if step is None:
        return asked
    if step <= 0:
        raise CseError(f"{where}: the step must be greater than 0, not {step:.12g}", f"write {FORM}")
    return Range(low, _last_step(low, high, step, where), asked.log, step)


def _last_step(low: float, high: float, step: float, where: str) -> float:
    """Return the largest value on a step: with decimals, as 0.3 is no multiple of 0.1 in binary."""
    start, width, spacing = Decimal(str(low)), Decimal(str(high)) - Decimal(str(low)), Decimal(str(step))
    if width < spacing:
        raise CseError(
            f"{where}: a step of {step:.12g} leaves nothing but {low:.12g}", f"use at most {float(width):.12g}"
        )
    return float(start + width // spacing * spacing)


def _check_choices(choices: Sequence[Value], where: str) -> None:
    if len({(type(choice), choice) for choice in choices}) < max(2, len(choices)):
        what = "only one value" if len(choices) < 2 else "the same value twice"
        raise CseError(f"{where}: {what}", "give at least two different values, with commas between them")


def parse_choices(text: str) -> Range:
    """Return the values that `--choices` gives: TOML values separated by commas; what is not TOML counts as text.

    Raises:
        CseError: There are fewer than two different ones, or one is a table or an array.
    """
    values = [_value(part.strip()) for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    odd = next((value for value in values if value == "" or not isinstance(value, Value)), None)
    if odd is not None:
        raise CseError(f"--choices: '{text}' are not single values", "such as 64,128,256 or cls,mean or true,false")
    return check_range(Range(choices=tuple(values)), f"--choices {text}")


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text
