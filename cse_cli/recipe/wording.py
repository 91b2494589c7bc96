"""pydantic's errors in the words of a recipe."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from registry.errors import suggestion

_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "string_type": "text in quotes",
    "bool_type": "true or false", "bool_parsing": "true or false", "list_type": "an array", "tuple_type": "an array",
    "dict_type": "a table", "model_type": "a table", "model_attributes_type": "a table",
    "finite_number": "a finite number", "string_too_short": "text that is not empty",
}  # fmt: skip


@dataclass(frozen=True)
class Checking:
    """A table under validation, as messages speak of it.

    Args:
        table: As written.
        keys: Its path in the recipe.
        known: Keys it may have.
        what: What it is, such as "loss 'info_nce'" or "[train]".
        noun: What its keys are called.
    """

    table: Mapping[str, Any]
    keys: Keys
    known: Sequence[str]
    what: str
    noun: str = "key"


def report(error: ValidationError, checking: Checking, problems: Problems) -> list[Keys]:
    """Add every error of a validated table to `problems`, and return the paths within the table that are wrong."""
    grouped: dict[Keys, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_within(checking.table, detail), []).append(detail)
    for path, details in grouped.items():
        _add(path, details, checking, problems)
    return list(grouped)


def _add(path: Keys, details: list[ErrorDetails], checking: Checking, problems: Problems) -> None:
    first, keys = details[0], checking.keys
    if first["type"] == "missing":
        problems.add((*keys, *path[:-1]), f"{checking.what} needs '{path[-1]}'", at_key=True)
    elif first["type"] == "extra_forbidden" and len(path) == 1:
        hint = suggestion(str(path[-1]), checking.known) or _listed(checking.known)
        problems.add((*keys, *path), f"unknown {checking.noun} '{path[-1]}' of {checking.what}.{hint}", at_key=True)
    else:
        problems.add((*keys, *path), _should_be(details))


def _listed(known: Sequence[str]) -> str:
    return f" Known: {', '.join(known)}." if known else " It has none."


def _within(table: Any, detail: ErrorDetails) -> Keys:
    """Return the part of an error's location that the data has: union members and "[key]" are pydantic's own."""
    path: Keys = ()
    at = table
    for key in detail["loc"]:
        inside = (isinstance(at, Mapping) and key in at) or (
            isinstance(at, list | tuple) and isinstance(key, int) and key < len(at)
        )
        if not inside:
            return (*path, key) if detail["type"] == "missing" else path
        path, at = (*path, key), at[key]
    return path


def _should_be(details: list[ErrorDetails]) -> str:
    value = details[0]["input"]
    expected = list(dict.fromkeys(_expected(detail) for detail in details))
    if all(phrase.startswith("=") for phrase in expected):
        return "; ".join(phrase.removeprefix("=") for phrase in expected)
    phrase = " or ".join(phrase.removeprefix("=") for phrase in expected)
    return f"should be {phrase}, not {shown_value(value)}{_near(details, value)}"


def _expected(detail: ErrorDetails) -> str:
    """Return what should stand there; a leading "=" marks a sentence of a component's own."""
    context = detail.get("ctx", {})
    bounds = {"greater_than": ("greater than", "gt"), "greater_than_equal": ("at least", "ge"),
              "less_than": ("less than", "lt"), "less_than_equal": ("at most", "le")}  # fmt: skip
    if detail["type"] in bounds:
        words, name = bounds[detail["type"]]
        return f"{words} {context[name]:.12g}"
    if detail["type"] in _EXPECTED:
        return _EXPECTED[detail["type"]]
    message = detail["msg"]
    if message.startswith("Input should be "):
        return message.removeprefix("Input should be ")
    words = message.removeprefix("Value error, ")
    return f"={words[:1].lower()}{words[1:]}"


def _near(details: list[ErrorDetails], value: Any) -> str:
    literals = [detail["ctx"]["expected"] for detail in details if detail["type"] == "literal_error"]
    hint = suggestion(str(value), [option for text in literals for option in re.findall(r"'([^']*)'", text)])
    return f".{hint}" if hint else ""


def shown_value(value: Any) -> str:
    """Return a value as TOML writes it, cut where it is long."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    return f"the text {text}" if isinstance(value, str) else text
