import pickle

import pytest
import torch

from registry.errors import MissingError
from registry.tokens import Sample
from registry.vocabulary import HubVocabulary
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, tiny_roberta


@pytest.fixture
def bert(tmp_path):
    return HubVocabulary(str(tiny_bert(tmp_path)))


@pytest.fixture
def roberta(tmp_path):
    return HubVocabulary(str(tiny_roberta(tmp_path)))


# Ids of the tiny vocabularies: five specials, then "a" 5, "the" 6, "cat" 7, "dog" 8, …, "runs" 16.


def test_sentences_with_special_tokens_are_truncated(bert, roberta):
    assert bert.ids(["the cat runs", "", "The DOG"], 32) == [[2, 6, 7, 16, 3], [2, 3], [2, 6, 8, 3]]
    assert bert.ids(["the cat runs"], 4) == [[2, 6, 7, 3]]
    assert roberta.ids(["the cat runs"], 32) == [[0, 6, 7, 16, 2]]
    assert bert.ids([], 4) == []


def test_truncation_does_not_stick(bert):
    bert.ids(["the cat runs"], 3)
    assert bert.ids(["the cat runs"], 32) == [[2, 6, 7, 16, 3]]
    assert bert.tokenizer("the cat runs")["input_ids"] == [2, 6, 7, 16, 3]


def test_ids_equal_the_tokenizers_own(bert):
    texts = ["the cat sees a dog under the tree", "cats", "unknown word ! ?", " "]
    assert bert.ids(texts, 8) == bert.tokenizer(texts, truncation=True, max_length=8)["input_ids"]


def test_padding_uses_the_models_own_pad_id(bert, roberta):
    tokens = bert.pad([[2, 7, 3], [2, 3]])
    assert tokens.ids.tolist() == [[2, 7, 3], [2, 3, 0]]
    assert tokens.mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert tokens.types.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert tokens.positions.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert roberta.pad([[0, 7, 2], [0, 2]]).ids.tolist() == [[0, 7, 2], [0, 2, 1]]


def test_the_special_tokens_around_a_sentence_can_be_left_out(bert, roberta):
    for vocabulary in (bert, roberta):
        tokens = vocabulary.tokens([Sample("the cat runs"), Sample(""), Sample("dog")], 32)
        inside = vocabulary.inside(tokens)
        assert inside.mask.tolist() == [[0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
        assert torch.equal(inside.ids, tokens.ids)


def test_no_rows_make_empty_tensors(bert):
    tokens = bert.pad([])
    assert tokens.ids.shape == tokens.positions.shape == (0, 0)
    assert tokens.ids.dtype == torch.int64


def test_samples_without_pair_equal_single_sentences(bert):
    texts = ["the cat runs", "a dog"]
    tokens = bert.tokens([Sample(text) for text in texts], 4)
    assert torch.equal(tokens.ids, bert.pad(bert.ids(texts, 4)).ids)
    assert tokens.labels is None


def test_labels_are_kept_when_every_sample_has_one(bert):
    assert bert.tokens([Sample("a", "the", 1), Sample("a", "a", 0)], 8).labels.tolist() == [1, 0]
    assert bert.tokens([Sample("a", "the", 1), Sample("a", "a")], 8).labels is None


def test_the_fingerprint_follows_the_content_not_the_place(tmp_path, bert):
    same = HubVocabulary(str(tiny_bert(tmp_path, name="copy", seed=5)))
    assert same.fingerprint == bert.fingerprint
    same.ids(["the cat"], 4)
    assert same.fingerprint == HubVocabulary(same.model).fingerprint
    assert HubVocabulary(str(tiny_roberta(tmp_path))).fingerprint != bert.fingerprint


def test_construction_reads_nothing_and_pickles_as_the_name():
    vocabulary = HubVocabulary("/nowhere/at/all")
    assert pickle.loads(pickle.dumps(vocabulary)).model == "/nowhere/at/all"
    with pytest.raises(MissingError):
        _ = vocabulary.fingerprint


def test_pickling_drops_the_loaded_tokenizer(bert):
    bert.ids(["the cat"], 8)
    copy = pickle.loads(pickle.dumps(bert))
    assert "tokenizer" not in vars(copy)
    assert copy.ids(["the cat"], 8) == [[2, 6, 7, 3]]


def test_decode_shows_the_specials(bert):
    assert bert.decode([2, 6, 7, 3]) == "[CLS] the cat [SEP]"


def test_a_tokenizer_without_backend_is_refused(bert):
    vars(bert)["tokenizer"] = object()
    with refuses("vocabulary.slow_tokenizer", "tokenizer.json"):
        bert.ids(["a"], 8)


def test_a_side_truncated_to_nothing_still_builds_a_pair(bert):
    assert bert.tokens([Sample("", "the cat")], 3).ids.tolist() == [[2, 3, 6, 3]]
