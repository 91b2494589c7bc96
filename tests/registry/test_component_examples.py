"""Examples in the docstrings of components: doctests pass, and TOML fragments load in a recipe.

An example is a TOML fragment, a doctest, or both in this order. Every loss has a doctest.
"""

from __future__ import annotations

import doctest
import inspect
import re
from textwrap import dedent

import pytest

from cse_cli.recipe.load import load
from registry import HEADS, LOSSES, QUEUES

BASE = "mini/simcse_en"
"""Recipe that a TOML example extends if it has no `extends` of its own."""


def example(cls: type) -> str:
    """Return the text below "Example:" or "Examples:", the section of a docstring that has only doctests."""
    _, *found = re.split(r"\nExamples?:\n", inspect.getdoc(cls) or "", maxsplit=1)
    return dedent("".join(found)).strip()


EXAMPLES = {
    f"{entry.kind}/{entry.name}": example(entry.cls)
    for registry in (LOSSES, HEADS, QUEUES)
    for entry in registry
    if entry.distribution == "cse"
}
PYTHON = [name for name, example in EXAMPLES.items() if ">>>" in example]
TOML = [name for name, example in EXAMPLES.items() if not example.startswith(">>>")]


def test_every_component_has_an_example():
    assert [name for name, example in EXAMPLES.items() if not example] == []
    assert [name for name in EXAMPLES if name.startswith("losses/") and name not in PYTHON] == []


@pytest.mark.parametrize("name", PYTHON)
def test_a_python_example_returns_its_value(name):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", TOML)
def test_a_toml_example_loads(name, tmp_path):
    example = EXAMPLES[name].partition(">>>")[0]
    recipe = tmp_path / "example.toml"
    recipe.write_text(example if example.startswith("extends") else f'extends = "{BASE}"\n\n{example}\n')
    kind, _, component = name.partition("/")
    assert component in _names(load(str(recipe)).recipe, kind)


def test_inherited_parameters_precede_the_example():
    text = LOSSES["nt_xent"].docstring
    assert text.index("temperature: ") < text.index("Examples:")


def _names(recipe, kind):
    """Return the names of a recipe's components of one kind."""
    resolved = recipe.resolved()
    if kind == "losses":
        return {loss.get("name", key) for key, loss in resolved["losses"].items()}
    if kind == "queues":
        return {resolved["queue"]["name"]}
    heads = resolved["encoders"]["online"]["heads"]
    return {head.get("name", key) for key, head in heads.items()}
