"""Every registered component keeps the contract of its kind and has a value test of its own."""

import ast
from pathlib import Path

import pytest

from registry import EVALUATORS, REGISTRIES
from registry.resources import catalog
from registry.testing import CHECKS, Materials, check
from tests.support import labeled, mteb_task
from tests.support.seq2seq import tiny_t5
from tests.support.tiny import tiny_bert, tiny_llama, word_vectors

HERE = Path(__file__).parent
ENTRIES = [entry for each in REGISTRIES for entry in each]
NAMES = [f"{entry.kind}/{entry.name}" for entry in ENTRIES]

VALUES = {
    "augmenters/edit_tokens": {"edit": "delete"},
    "augmenters/nearest_sentence": {"dataset": "tatoeba_open", "limit": 30, "neighbors": 3},
    # Its dropout does not follow eval(); what it trains is the embedding layer it shares.
    "encoders/ema": {"dropout": 0.0, "share": ["embeddings"], "target_gradient": "embeddings"},
    "encoders/component_removal": {"fit_on": "tatoeba_open", "limit": 200},
    "encoders/flow": {"fit_on": "tatoeba_open", "limit": 200},
    "encoders/rank_mixture": {"fit_on": "tatoeba_open", "limit": 50},
    "encoders/static": {"dim": 4, "sif": 1e-3},
    "encoders/whitening": {"fit_on": "tatoeba_open", "limit": 200, "k": 2},
    "evaluators/alignment_uniformity": {"dataset": "stsb_open", "split": "dev", "batch_size": 16},
    "evaluators/augmentation_quality": {"dataset": "stsb_open", "split": "dev"},
    "evaluators/mutual_information": {"second": "positive", "dataset": "tatoeba_open", "limit": 300},
    "evaluators/mutual_information_task": {"dataset": "stsb_open", "split": "dev", "mi_n": 8},
    "evaluators/mteb": {"task": mteb_task.NAME},
    "evaluators/retrieval_at_k": {
        "dataset": "stsb_open",
        "split": "dev",
        "query_column": "sentence1",
        "positive_column": "sentence2",
        "min_score": 4.0,
    },
    "evaluators/singular_values": {"dataset": "stsb_open", "split": "dev"},
    "evaluators/sts": {"dataset": "stsb_open", "split": "dev"},
    "evaluators/sts_average": {"datasets": ["stsb_open"], "split": "dev"},
    "evaluators/transfer": {"task": "mr"},
    "heads/group_whitening": {"groups": 4},
    "generators/joined_lines": {"sources": ["tatoeba_open/train"], "lines": 3},
    "generators/pair_sentences": {"sources": ["stsb_open/dev"]},
    "losses/matryoshka": {"widths": [4, 8]},
    # As many entries as a batch has rows, so that it begins with the first.
    "losses/smoothed_info_nce": {"neighbors": 3, "buffer": 6},
    # Every pair is fitted, however alike.
    "losses/neighbor_ranks": {"dataset": "tatoeba_open", "limit": 20, "low": -1.0, "high": 1.0},
    # Nothing exchanged, so that the order of rows cannot matter.
    "losses/group_distillation": {"group": 0.0},
    # Nothing mixed in of the next row, so that the order of rows cannot matter.
    "losses/mixed_info_nce": {"share": 1.0},
    # Nothing dropped, so that the order of rows cannot matter.
    "losses/denoising": {"layers": 1, "noise": 0.0, "dropout": 0.0, "feed_forward": 8},
    # No random direction, so that the order of rows cannot matter; the gradient reaches the encoder.
    "losses/virtual_neighbors": {"neighbors": 3, "epsilon": 0.0, "detached": False},
    # Nothing hidden, so that chance plays no part and the order of rows cannot matter.
    "losses/replaced_token_detection": {"masking": 0.0, "generator_head": "embeddings"},
    # Everything hidden, for the same reason; the tiny encoder has two layers.
    "losses/side_language_model": {"masking": 1.0, "mask_share": 1.0, "random_share": 0.0, "frozen_layers": 1},
}


IDENTITY = {
    "augmenters/delete_words": {"rate": 0.0},
    "augmenters/edit_tokens": {"rate": 0.0},
    "augmenters/embedding_dropout": {"rate": 0.0},
    "augmenters/feature_cutoff": {"rate": 0.0},
    "augmenters/fgsm": {"epsilon": 0.0},
    "augmenters/fuse_embeddings": {"rate": 1.0},
    "augmenters/mask_nested_span": {"rate": 0.0},
    "augmenters/mask_span": {"shortest": 10_000},
    "augmenters/mask_tokens": {"rate": 0.0},
    "augmenters/mask_words": {"rate": 0.0},
    "augmenters/repeat_words": {"rate": 0.0},
    "augmenters/replace_subwords": {"change": 0.0},
    "augmenters/switch_case": {"rate": 0.0},
    "augmenters/token_cutoff": {"rate": 0.0},
}
PACKAGES = {"evaluators/mteb": mteb_task.serve}
"""Component → what makes its package ready, or skips where it is not installed."""
NO_IDENTITY: set[str] = {
    "augmenters/nearest_sentence",
    "augmenters/negate",
    "augmenters/pair",
    "augmenters/replace_antonyms",
    "augmenters/spans",
    "augmenters/token_shuffle",
}
"""Augmenters that change something at every setting."""


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    made = {
        "encoders/contrastive_prompting": {"model": str(tiny_llama(folder, positions=256)), "block": 1},
        "encoders/word_vectors": {"file": str(word_vectors(folder / "vectors.txt"))},
        "generators/translate": {"model": str(tiny_t5(folder)), "prefix": "", "max_length": 12},
        "generators/long_texts": {"tokens": 4},
    }
    return Materials(model=tiny_bert(folder), values=VALUES | made, identity=IDENTITY)


@pytest.fixture(autouse=True)
def few_labeled(monkeypatch):
    """Serve labeled sentences, which no generator makes."""
    labeled.serve(monkeypatch)


def test_every_registered_component_is_checked():
    assert len(set(NAMES)) == len(NAMES)
    assert {each.kind for each in REGISTRIES} == set(CHECKS) == {entry.kind for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_contract(entry, materials, monkeypatch):
    if f"{entry.kind}/{entry.name}" in PACKAGES:
        PACKAGES[f"{entry.kind}/{entry.name}"](monkeypatch)
    read = catalog.read_pairs  # the most similar pairs are enough
    monkeypatch.setattr(catalog, "read_pairs", lambda *of: sorted(read(*of), key=lambda pair: pair.score)[-200:])
    check(entry, materials)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_has_a_value_test(entry):
    file, of_all = HERE / entry.kind / f"test_{entry.name}.py", HERE / f"test_{entry.kind}.py"
    if not file.is_file() and of_all.is_file() and f'"{entry.name}"' in of_all.read_text(encoding="utf-8"):
        file = of_all
    assert file.is_file(), f"{entry.kind}/{entry.name} needs a value test in {file}"
    assert asserting_tests(file) > 0, f"{file} holds no test that asserts anything"


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


OUT_OF_BOUNDS = {
    "augmenters/fgsm": [{"epsilon": -1.0}, {"mode": "off"}],
    "augmenters/fuse_embeddings": [{"rate": 1.1}, {"mask": "both"}, {"pad_fill": "none"}],
    "evaluators/alignment_uniformity": [{"alpha": 0.0}, {"t": 101.0}, {"batch_size": 1}, {"scope": "some"}],
    "evaluators/mutual_information": [{"mi_n": 1}, {"temperature": 0.0}, {"limit": 1}],
    "evaluators/mutual_information_task": [{"mi_n": 1}, {"temperature": 0.0}],
    "evaluators/sts_average": [{"datasets": []}],
    "evaluators/transfer": [{"task": "imdb"}, {"l2": []}, {"l2": [0.0]}, {"folds": 1}],
    "heads/batch_norm_mlp": [{"blocks": 0}, {"expansion": 0}],
    "heads/projection": [{"layers": 4}, {"layers": -1}, {"width": 0}, {"dropout": 1.0}],
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_values_out_of_bounds_are_refused(name, materials):
    entry = ENTRIES[NAMES.index(name)]
    valid = materials.arguments(entry)
    for wrong in OUT_OF_BOUNDS[name]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            entry.parameters(**{**valid, **wrong})


READS = {
    "alignment_uniformity": {},
    "augmentation_quality": {"view": "twin"},
    "mutual_information_task": {"view": "anchor"},
    "singular_values": {},
    "sts": {},
}


@pytest.mark.parametrize("name", READS)
def test_an_evaluator_names_the_data_set_and_split_that_it_reads(name, monkeypatch):
    monkeypatch.setattr(catalog, "fingerprint", lambda dataset, split: f"digest of {dataset} {split}")
    made = EVALUATORS[name].build({"dataset": "stsb", "split": "dev", **READS[name]})
    assert made.fingerprints() == {"stsb/dev": "digest of stsb dev"}


def test_resource_parameters_are_annotated():
    """What a run needs is known from them before its first download."""
    named = ("model", "dataset", "datasets", "file", "translations", "generator", "discriminator", "fit_on")
    undeclared = [
        f"{entry.kind}.{entry.name}.{parameter}"
        for registry in REGISTRIES
        for entry in registry
        for parameter in entry.parameters.model_fields
        if parameter in named and parameter not in entry.resources
    ]
    assert undeclared == []
