"""Positions of keys and values, by hand and compared with tomllib on generated texts."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.recipe.sources import Position, Span, positions

TEXT = """\
title = "ä"  # comment
a.b."c.d" = [1, # one
  { x = 1, y.z = 'é' }]

[losses.info_nce]
temperature = 0.05
views = { anchor = "a", "positive x" = "p" }

[[views.v.augment]]
name = "first"
[[views.v.augment]]
name = "second"
[views.v.augment.inner]
rate = 3
['q'.r]
s = \"\"\"two
lines\"\"\"
t = 1
"""


def test_every_form_of_key():
    spans = positions(TEXT)
    expected = {
        ("title",): ((1, 1), (1, 9)),
        ("a",): ((2, 1), (2, 1)),
        ("a", "b", "c.d"): ((2, 5), (2, 13)),
        ("a", "b", "c.d", 0): ((2, 14), (2, 14)),
        ("a", "b", "c.d", 1): ((3, 3), (3, 3)),
        ("a", "b", "c.d", 1, "x"): ((3, 5), (3, 9)),
        ("a", "b", "c.d", 1, "y", "z"): ((3, 14), (3, 18)),
        ("losses",): ((5, 2), (5, 2)),
        ("losses", "info_nce"): ((5, 9), (5, 9)),
        ("losses", "info_nce", "temperature"): ((6, 1), (6, 15)),
        ("losses", "info_nce", "views", "positive x"): ((7, 25), (7, 40)),
        ("views", "v", "augment", 0): ((9, 11), (9, 11)),
        ("views", "v", "augment", 0, "name"): ((10, 1), (10, 8)),
        ("views", "v", "augment", 1, "name"): ((12, 1), (12, 8)),
        ("views", "v", "augment", 1, "inner", "rate"): ((14, 1), (14, 8)),
        ("q", "r", "s"): ((16, 1), (16, 5)),
        ("q", "r", "t"): ((18, 1), (18, 5)),
    }
    for keys, (key, value) in expected.items():
        assert spans[keys] == Span(Position(*key), Position(*value)), keys


def test_columns_count_characters_and_survive_crlf():
    spans = positions('a = [ "ää", 1 ]\r\nb = 2\r\n')
    assert spans[("a", 1)].value == Position(1, 13)
    assert spans[("b",)].value == Position(2, 5)


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=5)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


def toml(value: Any) -> str:
    """Write a value in line; JSON strings are TOML strings."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {toml(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def document(tables: dict[str, dict[str, Any]], arrays: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for name, table in tables.items():
        lines += [f"[t.{json.dumps(name, ensure_ascii=False)}]", *_pairs(table)]
    for name, items in arrays.items():
        for item in items:
            lines += [f"[[r.{json.dumps(name, ensure_ascii=False)}]]", *_pairs(item)]
    return "\n".join(lines) + "\n"


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{json.dumps(key, ensure_ascii=False)} = {toml(value)}" for key, value in table.items()]


def paths(value: Any, prefix: tuple = ()) -> set[tuple]:
    found = {prefix} if prefix else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found |= paths(inner, (*prefix, key))
    return found


@settings(max_examples=150)
@given(
    st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3),
    st.dictionaries(KEYS, st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=3), max_size=2),
)
def test_finds_exactly_what_tomllib_reads(tables, arrays):
    text = document(tables, arrays)
    read = tomllib.loads(text)
    spans = positions(text)
    assert set(spans) == paths(read)
    lines = text.split("\n")
    for keys, span in spans.items():
        assert 1 <= span.value.column <= len(lines[span.value.line - 1])
        value = read
        for key in keys:
            value = value[key]
        if not isinstance(value, dict | list):
            written = lines[span.value.line - 1][span.value.column - 1 :]
            assert written.startswith(toml(value))
