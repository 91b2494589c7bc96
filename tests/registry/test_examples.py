"""Examples in docstrings: doctests pass, and TOML fragments load in a recipe or have valid parameters.

An example is a TOML fragment, a doctest, or both in this order. Every loss has a doctest.
"""

import doctest
import importlib
import inspect
import re
import tomllib
from textwrap import dedent

import pytest
import torch

from cse_cli.recipe.load import load
from registry import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES
from registry.types import ColumnGenerator

BASE = "mini/simcse_en"
"""Recipe that a TOML example extends if it has no `extends` of its own."""


def own(*registries):
    """Return the components of the package, without those of plug-ins."""
    return [entry for registry in registries for entry in registry if entry.distribution == "cse"]


def example(entry) -> str:
    """Return the text below "Example:" or "Examples:", the section of a docstring that has only examples."""
    _, *found = re.split(r"\nExamples?:\n", inspect.getdoc(entry.cls) or "", maxsplit=1)
    return dedent("".join(found)).strip()


EXAMPLES = {f"{entry.kind}/{entry.name}": example(entry) for entry in own(LOSSES, HEADS, QUEUES)}
PYTHON = [name for name, example in EXAMPLES.items() if ">>>" in example]
TOML = [name for name, example in EXAMPLES.items() if not example.startswith(">>>")]


@pytest.mark.parametrize("module", ["registry.types", "registry.loss_wrapper", "registry.testing.materials"])
def test_examples_of_the_interface_for_plugins(module):
    results = doctest.testmod(importlib.import_module(module), extraglobs={"torch": torch})
    assert results.attempted > 0
    assert results.failed == 0


def test_every_component_has_an_example_behind_its_parameters():
    assert [name for name, example in EXAMPLES.items() if not example] == []
    assert [name for name in EXAMPLES if name.startswith("losses/") and name not in PYTHON] == []
    text = LOSSES["nt_xent"].docstring
    assert text.index("temperature: ") < text.index("Examples:")


@pytest.mark.slow
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
    resolved = load(str(recipe)).recipe.resolved()
    parts = {
        "losses": resolved["losses"],
        "queues": {"queue": resolved.get("queue", {})},
        "heads": resolved["encoders"]["online"].get("heads", {}),
    }[kind]
    assert component in {part.get("name", key) for key, part in parts.items()}


@pytest.mark.parametrize("entry", own(AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS), ids=lambda entry: entry.name)
def test_a_fragment_has_valid_parameters(entry):
    table = tomllib.loads(example(entry))
    if entry.kind == "generators" and not issubclass(entry.cls, ColumnGenerator):
        assert list(table["generator"]) == ["name", "params"]
        parts = [{"name": table["generator"]["name"], **table["generator"]["params"]}]
    elif entry.kind == "generators":
        parts = table["data"]["columns"].values()
    elif entry.kind in ("encoders", "evaluators"):
        parts = table[entry.kind].values()
    else:
        parts = []
        for view in table["views"].values():
            assert list(view) == ["encoder", "augment"]
            *before, part = view["augment"]
            assert all(list(each) == ["name"] and each["name"] in AUGMENTERS for each in before)
            parts.append(part)
    for part in parts:
        assert next(iter(part.items())) == ("name", entry.name)
        entry.parameters(**{key: value for key, value in part.items() if key != "name"})
