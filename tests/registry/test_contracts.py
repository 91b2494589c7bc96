"""Every registered component keeps the contract of its kind, is of readable size, and has a value test of its own."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from registry import REGISTRIES
from registry.testing import CHECKS, Materials, check
from tests.tiny import tiny_bert

HERE = Path(__file__).parent
ENTRIES = [entry for each in REGISTRIES for entry in each]
NAMES = [f"{entry.kind}/{entry.name}" for entry in ENTRIES]
LINES = 120

VALUES = {
    "evaluators/sts": {"dataset": "graded_pairs", "split": "dev"},
    "generators/graded_pairs": {"sentences": 60, "pairs": 60},
}
IDENTITY = {"augmenters/fuse_embeddings": {"rate": 1.0}}
NO_IDENTITY: set[str] = set()
"""Augmenters that change something at every setting."""


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    model = tiny_bert(tmp_path_factory.mktemp("models"))
    return Materials(model=model, values=VALUES, identity=IDENTITY)


def test_every_registered_component_is_checked():
    assert len(ENTRIES) == sum(len(each) for each in REGISTRIES) > 0
    assert len(set(NAMES)) == len(NAMES)
    assert {each.kind for each in REGISTRIES} == set(CHECKS) == {entry.kind for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_contract(entry, materials):
    check(entry, materials)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_has_a_value_test(entry):
    file = HERE / entry.kind / f"test_{entry.name}.py"
    assert file.is_file(), f"{entry.kind}/{entry.name} needs a value test in {file}"
    assert asserting_tests(file) > 0, f"{file} holds no test that asserts anything"


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_fits_on_a_few_pages(entry):
    assert lines_of_code(Path(entry.file)) <= LINES


def test_every_augmenter_says_when_it_does_nothing():
    augmenters = {name for name in NAMES if name.startswith("augmenters/")}
    assert augmenters == set(IDENTITY) | NO_IDENTITY


def asserting_tests(file):
    """Return how many test functions hold an assertion or expect an exception."""
    found = 0
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found += any(isinstance(n, ast.Assert) or "raises" in ast.dump(n) for n in ast.walk(node))
    return found


def lines_of_code(file):
    """Return the number of lines that hold code: no comments, docstrings or blank lines."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    source = file.read_text(encoding="utf-8")
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)
