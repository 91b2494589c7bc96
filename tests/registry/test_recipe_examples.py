"""The recipe fragments in the docstrings of augmenters, evaluators and generators."""

from __future__ import annotations

import inspect
import tomllib
from textwrap import dedent

import pytest

from registry import AUGMENTERS, EVALUATORS, GENERATORS
from registry.types import ColumnGenerator


def example(entry):
    """Return the fragment below "Example:" as a table."""
    lines = inspect.getdoc(entry.cls).partition("\nExample:\n")[2]
    assert lines, f"{entry.name} has no example"
    return tomllib.loads(dedent(lines))


def own(registry):
    """Return the components of the package, without those of plug-ins."""
    return [pytest.param(entry, id=entry.name) for entry in registry if entry.distribution == "cse"]


def check(entry, table):
    """Validate the parameters of a component's table, whose first key is its name."""
    name, *_ = table
    assert (name, table[name]) == ("name", entry.name)
    entry.parameters(**{key: value for key, value in table.items() if key != "name"})


@pytest.mark.parametrize("entry", own(AUGMENTERS))
def test_examples_of_augmenters(entry):
    for view in example(entry)["views"].values():
        assert list(view) == ["encoder", "augment"]
        *before, table = view["augment"]
        assert all(list(each) == ["name"] and each["name"] in AUGMENTERS for each in before)
        check(entry, table)


@pytest.mark.parametrize("entry", own(EVALUATORS))
def test_examples_of_evaluators(entry):
    (table,) = example(entry)["evaluators"].values()
    check(entry, table)


@pytest.mark.parametrize("entry", own(GENERATORS))
def test_examples_of_generators(entry):
    if issubclass(entry.cls, ColumnGenerator):
        (table,) = example(entry)["data"]["columns"].values()
        check(entry, table)
        return
    table = example(entry)["generator"]
    assert list(table) == ["name", "params"]
    check(entry, {"name": table["name"], **table["params"]})
