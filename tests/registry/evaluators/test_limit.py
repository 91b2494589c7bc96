"""`evaluate.limit`: at most this many pairs or rows of every evaluator, spread over its data."""

import inspect

import pytest
import torch

from registry import EVALUATORS
from registry.evaluators.classifiers import read_labeled
from registry.evaluators.pairs import evenly_spaced
from registry.evaluators.retrieval_at_k import RetrievalAtK
from registry.evaluators.sts import Sts
from registry.evaluators.sts_average import StsAverage
from registry.evaluators.transfer import Transfer
from registry.resources import catalog
from registry.resources.catalog import Pair
from tests.registry.evaluators.points import serve
from tests.support import labeled

PAIRS = [Pair("one" if place < 10 else "two", place / 4, f"a{place}", f"b{place}") for place in range(20)]


class Encoder:
    """Random embeddings, and all sentences that were requested."""

    def __init__(self):
        self.sentences = []

    def __call__(self, sentences, side=None):
        self.sentences += sentences
        return torch.randn(len(sentences), 4, generator=torch.Generator().manual_seed(len(sentences)))


@pytest.fixture(autouse=True)
def pairs(monkeypatch):
    serve(monkeypatch, PAIRS)


@pytest.mark.parametrize(
    ("most", "kept"), [(None, "0123456789"), (20, "0123456789"), (5, "02468"), (3, "036"), (1, "0")]
)
def test_rows_at_equal_distances(most, kept):
    assert "".join(evenly_spaced("0123456789", most)) == kept


def test_pairs_of_all_subsets_and_of_every_set_of_an_average():
    evaluator, encode = Sts("stsb_open"), Encoder()
    evaluator.limit = 4
    evaluator(encode)
    assert set(encode.sentences) == {f"{side}{place}" for side in "ab" for place in (0, 5, 10, 15)}
    assert evaluator.series()["gold"] == [0.0, 1.25, 2.5, 3.75]
    assert len(evaluator.all_pairs()) == 20
    evaluator, encode = StsAverage(["stsb", "sickr"]), Encoder()
    evaluator.limit = 3
    evaluator(encode)
    assert len(encode.sentences) == 2 * 2 * 3


def test_retrieval_has_fewer_candidates(monkeypatch):
    monkeypatch.setattr(catalog, "read_columns", lambda *_: PAIRS)
    evaluator, encode = (
        RetrievalAtK("tatoeba_open", "train", query_column="text", positive_column="translation"),
        Encoder(),
    )
    evaluator.limit = 5
    evaluator(encode)
    assert len(encode.sentences) == 10


@pytest.mark.slow
def test_labels_have_the_same_number_of_rows(monkeypatch):
    labeled.serve(monkeypatch)
    whole, part = read_labeled("trec"), read_labeled("trec", 9)
    assert {split: len(rows) for split, rows in part.splits.items()} == {"train": 9, "test": 9}
    assert sorted(part.labels[:9]) == ["ABBR"] * 3 + ["DESC"] * 3 + ["HUM"] * 3
    assert set(part.texts) <= set(whole.texts)
    evaluator, encode = Transfer("trec", "logistic", folds=2), Encoder()
    evaluator.limit = 9
    evaluator(encode)
    assert len(encode.sentences) == 18


def test_every_evaluator_of_pairs_reads_them_through_the_limit():
    for entry in EVALUATORS:
        if hasattr(entry.cls, "all_pairs"):
            assert entry.cls.pairs is Sts.pairs, f"{entry.name} overrides `pairs` instead of `all_pairs`"
            assert "limit" not in inspect.signature(entry.cls.pairs).parameters
