"""Every registered component keeps the contract of its kind, is of readable size, and has a value test of its own."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from registry import REGISTRIES
from registry.testing import CHECKS, Materials, check
from tests.tiny import tiny_bert, word_vectors

HERE = Path(__file__).parent
ENTRIES = [entry for each in REGISTRIES for entry in each]
NAMES = [f"{entry.kind}/{entry.name}" for entry in ENTRIES]
LINES = 120

VALUES = {
    # Its dropout does not follow eval(); what it trains is the embedding layer it shares.
    "encoders/ema": {"dropout": 0.0, "target_gradient": "embeddings"},
    "encoders/flow": {"fit_on": "graded_pairs", "limit": 200},
    "encoders/whitening": {"fit_on": "graded_pairs", "limit": 200, "k": 2},
    "evaluators/augmentation_quality": {"dataset": "graded_pairs", "split": "dev"},
    "evaluators/sts": {"dataset": "graded_pairs", "split": "dev"},
    "evaluators/sts_average": {"datasets": ["graded_pairs"], "split": "dev"},
    "generators/graded_pairs": {"sentences": 60, "pairs": 60},
    "generators/pair_sentences": {"sources": ["graded_pairs/dev"]},
    # Nothing hidden, so that chance plays no part and the order of rows cannot matter.
    "losses/replaced_token_detection": {"masking": 0.0, "generator_head": "embeddings"},
}
IDENTITY = {
    "augmenters/adversarial_noise": {"norm": 0.0},
    "augmenters/embedding_dropout": {"rate": 0.0},
    "augmenters/feature_cutoff": {"rate": 0.0},
    "augmenters/fgsm": {"epsilon": 0.0},
    "augmenters/fuse_embeddings": {"rate": 1.0},
    "augmenters/mask_tokens": {"rate": 0.0},
    "augmenters/repeat_words": {"rate": 0.0},
    "augmenters/replace_subwords": {"change": 0.0},
    "augmenters/span_cutoff": {"rate": 0.0},
    "augmenters/token_cutoff": {"rate": 0.0},
}
NO_IDENTITY: set[str] = {"augmenters/pair", "augmenters/replace_antonyms", "augmenters/token_shuffle"}
"""Augmenters that change something at every setting."""


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    vectors = {"encoders/word_vectors": {"file": str(word_vectors(folder / "vectors.txt"))}}
    return Materials(model=tiny_bert(folder), values=VALUES | vectors, identity=IDENTITY)


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
