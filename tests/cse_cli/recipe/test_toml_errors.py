"""Causes and places of texts that are not TOML."""

from __future__ import annotations

import random
import tomllib

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.toml_errors import explain

CASES = [
    ("title = hello\n", "1:9", 'text needs quotes: title = "hello"'),
    ("x = 1\ntitle = hello world  # why\n", "2:9", 'text needs quotes: title = "hello world"'),
    ("a = ~/x.txt\n", "1:5", 'text needs quotes: a = "~/x.txt"'),
    ("a = 1e-4x\n", "1:9", 'text needs quotes: a = "1e-4x"'),
    ("a = [1, b]\n", "1:9", "text needs quotes"),
    ("a = “x”\n", "1:5", "straight quotes"),
    ("a = 1\nb = 2\na = 3\n", "3:1", "'a' is given twice, first in line 1"),
    ("[t]\nx = 1\n[u]\nx = 2\n[t]\n", "5:2", "'t' is given twice, first in line 1"),
    ("[t]\nlr = 1\n[u]\nlr = 1\nlr = 2\n", "5:1", "'u.lr' is given twice, first in line 4"),
    ("[t]\nlr = 1\n[t.lr]\n", "3:4", "'t.lr' is given twice, first in line 2"),
    ("a.b = 1\na = 2\n", "2:1", "'a' is given twice, first in line 1"),
    ("a = { b = 1, b = 2 }\n", "1:14", "'a.b' is given twice, first in line 1"),
    ("a = [1, 2\n", "1:5", "array is not closed. Add ]"),
    ("x = 1\na = [\n  1,\n  [2, 3],\n\nb = 3\n", "2:5", "array is not closed. Add ]"),
    ('a = [\n "c",\n[train]\nd = 1\n', "1:5", "array is not closed. Add ]"),
    ('a = ["]", "x"\nb = 1 # ]\n', "1:5", "array is not closed. Add ]"),
    ("a = { x = 1\n", "1:5", "inline table is not closed. Add }"),
    ('a = ["x" "y"]\n', "1:10", "a comma is missing"),
    ("a = { x = 1,\n y = 2 }\n", "1:13", "on one line"),
    ('a = "abc\nb = "x"\n', "1:5", 'string is not closed. Add " at'),
    ("b = 1\na = 'abc\nc = 1\n", "2:5", "string is not closed. Add ' at"),
    ('a = """x\ny\n', "1:5", 'string is not closed. Add """ at'),
    ("[table\na = 1\n", "1:7", "']' is missing at the end of [table"),
    ("[[table]\na = 1\n", "1:8", "']]' is missing at the end of [[table]"),
    ("key value\n", "1:5", "= is missing after 'key'"),
    ("key: 1\n", "1:4", "write = instead of : after 'key'"),
    ("a b = 1\n", "1:3", "Write a_b"),
    ("= 1\n", "1:1", "a line starts with a key"),
    ("a =\n", "1:4", "a value is missing"),
    ("a = [1,,2]\n", "1:8", "a value is missing"),
    ("a = True\n", "1:5", "write true"),
    ("a = no\n", "1:5", "write false"),
    ("a = None\n", "1:5", "Remove the line"),
    ("a = 0,5\n", "1:6", "write a decimal point: 0.5"),
    ("a = .5\n", "1:5", "write 0.5 instead of .5"),
    ("a = 5.\n", "1:6", "write 5.0 instead of 5."),
    ("a = 007\n", "1:6", "write 7 instead of 007"),
    ("a = 'it's'\n", "1:9", "Use double quotes"),
    ('a = "C:\\Users"\n', "1:10", "single quotes"),
    ('a = "C:\\data"\n', "1:10", "single quotes"),
    ("a = 1 b = 2\n", "1:7", "each key on its own line"),
    ("[]\n", "1:2", "name is missing"),
]


@pytest.mark.parametrize(("text", "place", "cause"), CASES)
def test_cause_and_place(text: str, place: str, cause: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    found, message = explain(text, caught.value)
    assert f"{found.line}:{found.column}" == place, message
    assert cause in message


def test_every_damaged_recipe_has_a_cause_inside_the_file() -> None:
    generator = random.Random(0)
    texts = [path.read_text(encoding="utf-8") for path in list(all_recipes().values())[::20]]
    explained = 0
    for _ in range(300):
        text = generator.choice(texts)
        at = generator.randrange(len(text))
        damaged = text[:at] + generator.choice(["", '"', "'", "[", "]", "{", "=", "\n", ",", "\\"]) + text[at + 1 :]
        try:
            tomllib.loads(damaged)
        except tomllib.TOMLDecodeError as error:
            place, message = explain(damaged, error)
            lines = damaged.split("\n")
            assert 1 <= place.line <= len(lines)
            assert 1 <= place.column <= len(lines[place.line - 1]) + 1
            assert message
            explained += 1
    assert explained > 50
