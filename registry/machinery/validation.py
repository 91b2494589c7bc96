"""Errors of pydantic in plain words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from registry.errors import suggestion

_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "string_type": "text in quotes",
    "bool_type": "true or false", "bool_parsing": "true or false", "list_type": "an array", "tuple_type": "an array",
    "set_type": "an array", "dict_type": "a table", "model_type": "a table", "model_attributes_type": "a table",
    "finite_number": "a finite number", "string_too_short": "text that is not empty", "none_required": "left out",
}  # fmt: skip
_BOUNDS = {
    "greater_than": ("greater than", "gt"), "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"), "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}  # fmt: skip
_LENGTHS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def describe(error: ValidationError) -> str:
    """Return all errors in one line, such as "steps: should be at least 0, not -1"."""
    said = []
    for detail in error.errors(include_url=False):
        where = ".".join(map(str, detail["loc"]))
        what = "is missing" if detail["type"] == "missing" else should_be([detail])
        said.append(f"{where}: {what}" if where else what)
    return "; ".join(said)


def should_be(details: Sequence[ErrorDetails]) -> str:
    """Return the error of one value, such as "should be at least 0, not -1".

    `details` has one error for each type in a union.
    """
    value = details[0]["input"]
    expected = list(dict.fromkeys(_expected(detail) for detail in details))
    if all(phrase.startswith("=") for phrase in expected):
        return "; ".join(phrase.removeprefix("=") for phrase in expected)
    phrase = " or ".join(phrase for phrase in expected if not phrase.startswith("="))
    hint = suggestion(str(value), re.findall(r"'([^']*)'", phrase))
    return f"should be {phrase}, not {shown_value(value)}{f'.{hint}' if hint else ''}"


def _expected(detail: ErrorDetails) -> str:
    """Return the expected value. A leading "=" marks a whole sentence, for example of a component."""
    kind, context, words = detail["type"], detail.get("ctx", {}), detail["msg"]
    if kind in _BOUNDS:
        bound, name = _BOUNDS[kind]
        return f"{bound} {context[name]:.12g}"
    if kind in _LENGTHS:
        bound, name = _LENGTHS[kind]
        return f"an array of {bound} {context[name]} {'item' if context[name] == 1 else 'items'}"
    if kind == "extra_forbidden":
        return "=is not a valid key"
    if kind == "string_pattern_mismatch":
        return f"text of the form {context['pattern']}"
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    words = words.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if words.startswith("Input should be "):
        return words.removeprefix("Input should be ")
    return f"={words[:1].lower()}{words[1:]}"


def shown_value(value: Any) -> str:
    """Return a value in TOML, truncated to 60 characters."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number that long"  # Python formats at most 4,300 digits
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    return f"the text {text}" if isinstance(value, str) else text
