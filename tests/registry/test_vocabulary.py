import pickle

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import RobertaConfig, RobertaTokenizer

from registry.encoders.word_vectors import WordVocabulary
from registry.errors import MissingError
from registry.tokens import Pieces, Sample
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


def test_ids_are_the_tokenizers_own_and_truncated_each_time(bert, roberta):
    assert bert.ids(["the cat runs", "", "The DOG"], 32) == [[2, 6, 7, 16, 3], [2, 3], [2, 6, 8, 3]]
    assert bert.ids(["the cat runs"], 4) == [[2, 6, 7, 3]]
    assert roberta.ids(["the cat runs"], 32) == [[0, 6, 7, 16, 2]]
    assert bert.ids([], 4) == []
    bert.ids(["the cat runs"], 3)
    assert bert.ids(["the cat runs"], 32) == [[2, 6, 7, 16, 3]]
    assert bert.tokenizer("the cat runs")["input_ids"] == [2, 6, 7, 16, 3]
    texts = ["the cat sees a dog under the tree", "cats", "unknown word ! ?", " "]
    assert bert.ids(texts, 8) == bert.tokenizer(texts, truncation=True, max_length=8)["input_ids"]
    assert bert.decode([2, 6, 7, 3]) == "[CLS] the cat [SEP]"


def test_padding_uses_the_models_own_pad_id(bert, roberta):
    tokens = bert.pad([[2, 7, 3], [2, 3]])
    assert tokens.ids.tolist() == [[2, 7, 3], [2, 3, 0]]
    assert tokens.mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert tokens.types.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert tokens.positions.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert roberta.pad([[0, 7, 2], [0, 2]]).ids.tolist() == [[0, 7, 2], [0, 2, 1]]
    tokens = bert.pad([])
    assert tokens.ids.shape == tokens.positions.shape == (0, 0)
    assert tokens.ids.dtype == torch.int64


def test_specials_can_be_left_out_and_the_fingerprint_is_that_of_the_content(bert, roberta, tmp_path):
    for vocabulary in (bert, roberta):
        tokens = vocabulary.tokens([Sample("the cat runs"), Sample(""), Sample("dog")], 32)
        inside = vocabulary.inside(tokens)
        assert inside.mask.tolist() == [[0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
        assert torch.equal(inside.ids, tokens.ids)
    same = HubVocabulary(str(tiny_bert(tmp_path, name="copy", seed=5)))
    assert same.fingerprint == bert.fingerprint
    same.ids(["the cat"], 4)
    assert same.fingerprint == HubVocabulary(same.model).fingerprint
    assert HubVocabulary(str(tiny_roberta(tmp_path))).fingerprint != bert.fingerprint


def test_samples_with_and_without_pair_and_labels(bert):
    texts = ["the cat runs", "a dog"]
    tokens = bert.tokens([Sample(text) for text in texts], 4)
    assert torch.equal(tokens.ids, bert.pad(bert.ids(texts, 4)).ids)
    assert tokens.labels is None
    assert bert.tokens([Sample("a", "the", 1), Sample("a", "a", 0)], 8).labels.tolist() == [1, 0]
    assert bert.tokens([Sample("a", "the", 1), Sample("a", "a")], 8).labels is None
    assert bert.tokens([Sample("", "the cat")], 3).ids.tolist() == [[2, 3, 6, 3]]


def test_construction_reads_nothing_and_pickles_as_the_name(bert):
    vocabulary = HubVocabulary("/nowhere/at/all")
    assert pickle.loads(pickle.dumps(vocabulary)).model == "/nowhere/at/all"
    with pytest.raises(MissingError):
        _ = vocabulary.fingerprint
    bert.ids(["the cat"], 8)
    copy = pickle.loads(pickle.dumps(bert))
    assert "tokenizer" not in vars(copy)
    assert copy.ids(["the cat"], 8) == [[2, 6, 7, 3]]
    slow = pickle.loads(pickle.dumps(bert))
    vars(slow)["tokenizer"] = object()
    with refuses("vocabulary.slow_tokenizer", "tokenizer.json"):
        slow.ids(["a"], 8)


LONG = "the cat sees a dog under the tree and the dog sees the cat on the house " * 4
PAIRS = [
    ("the cat runs", "a dog"),
    ("a dog", "the cat runs in the house"),
    ("The Dog.", "the dog , not the cat"),
    ("unknown words !", "the"),
]


def byte_level_roberta(folder):
    """Write a tokenizer of RoBERTa's own class: byte-level, every byte one piece."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {token: number for number, token in enumerate([*specials, *sorted(ByteLevel.alphabet())])}
    RobertaConfig(vocab_size=len(vocabulary)).save_pretrained(folder)
    RobertaTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder)
    return folder


@pytest.fixture(params=["mini_en", "bert", "roberta", "byte_level_roberta"])
def vocabulary(request, tmp_path):
    made = {"bert": tiny_bert, "roberta": tiny_roberta, "byte_level_roberta": byte_level_roberta}
    return HubVocabulary(str(made[request.param](tmp_path)) if request.param in made else request.param)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_ids_segments_and_mask_are_the_tokenizers_own(vocabulary, first, second):
    tokens = vocabulary.tokens([Sample(first, second)], 64)
    own = vocabulary.tokenizer(first, second, return_tensors="pt")
    assert torch.equal(tokens.ids, own["input_ids"])
    assert torch.equal(tokens.mask, own["attention_mask"])
    assert torch.equal(tokens.types, own.get("token_type_ids", torch.zeros_like(tokens.ids)))


def test_segments_of_pairs_by_hand(tmp_path):
    tokens = HubVocabulary("mini_en").tokens([Sample("a", "b"), Sample("a b", "b a b")], 32)
    assert tokens.ids.tolist() == [[2, 35, 3, 36, 3, 0, 0, 0], [2, 35, 36, 3, 36, 35, 36, 3]]
    assert tokens.types.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]
    assert tokens.mask.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]
    vocabulary = HubVocabulary(str(byte_level_roberta(tmp_path)))
    a, b = (vocabulary.tokenizer.convert_tokens_to_ids(each) for each in "ab")
    tokens = vocabulary.tokens([Sample("a", "b")], 32)
    assert tokens.ids.tolist() == [[0, a, 2, 2, b, 2]]
    assert tokens.types.tolist() == [[0] * 6]


def test_a_sentence_paired_with_itself_is_truncated_equally(vocabulary):
    [single] = vocabulary.pieces([Sample(LONG)], 32)
    [pair] = vocabulary.pieces([Sample(LONG, LONG)], 32)
    assert len(single.first) == 30
    assert pair.first == pair.second == single.first
    assert vocabulary.tokens([Sample(LONG)], 32).length == 32
    specials = vocabulary.tokenizer.num_special_tokens_to_add(pair=True)
    assert vocabulary.tokens([Sample(LONG, LONG)], 32).length == 60 + specials


def test_cut_after_pairing_the_halves_of_a_bert_pair_differ():
    vocabulary = HubVocabulary("mini_en")
    [pair] = vocabulary.pieces([Sample(LONG, LONG, joint=True)], 32)
    assert (len(pair.first), len(pair.second)) == (31, 30)
    assert vocabulary.tokens([Sample(LONG, LONG, joint=True)], 32).length == 64


@pytest.mark.parametrize(("first", "second"), [(20, 45), (45, 20), (29, 45), (45, 29), (45, 33), (30, 31), (31, 30)])
def test_cut_after_pairing_follows_the_tokenizers_longest_first(first, second):
    vocabulary = HubVocabulary("mini_en")
    words = LONG.split()
    left, right = " ".join(words[:first]), " ".join(words[-second:])
    own = vocabulary.tokenizer(left, right, truncation="longest_first", max_length=64)["input_ids"]
    assert vocabulary.tokens([Sample(left, right, joint=True)], 32).ids.tolist() == [own]


WORDS = ["the", "cat", ",", "'", "t", "don", "U.S.", "can't"]
V = WordVocabulary(WORDS, lower=False)


def words(text, vocabulary=V, length=99):
    return [vocabulary.words[i - 1] for i in vocabulary.ids([text], length)[0]]


def test_pieces_that_are_words_stay_whole_and_others_are_cut_and_counted():
    assert words("the cat, don't") == ["the", "cat", ",", "don", "'", "t"]
    assert words("the U.S. can't") == ["the", "U.S.", "can't"]
    assert words("U.S., THE dog  \u00a0cat\u2028the") == [",", "cat", "the"]
    assert words("THE Cat", WordVocabulary(["the", "cat"], lower=True)) == ["the", "cat"]
    assert words("") == words("dog !") == []
    assert words("dog the dog cat the", length=2) == ["the", "cat"]


def test_words_padding_pairs_labels_and_fingerprint():
    tokens = V.pad([[1, 2, 3], [], [4]])
    assert tokens.ids.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert tokens.mask.tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert tokens.positions.tolist() == [[0, 1, 2]] * 3
    assert tokens.types.sum() == 0
    assert V.pad([[], []]).ids.shape == (2, 0)
    assert V.pad([]).ids.shape == (0, 0)
    samples = [Sample("the cat", "cat , cat", label=1), Sample("t", label=0)]
    pieces = V.pieces(samples, 2)
    assert pieces == [Pieces((1, 2), (2, 3), 1), Pieces((5,), None, 0)]
    tokens = V.assemble(pieces)
    assert tokens.ids.tolist() == [[1, 2, 2, 3], [5, 0, 0, 0]]
    assert tokens.types.tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert tokens.labels is not None
    assert tokens.labels.tolist() == [1, 0]
    assert torch.equal(V.tokens(samples, 2).ids, tokens.ids)
    assert V.tokens([Sample("t"), Sample("t", label=1)], 2).labels is None
    assert (V.size, V.specials, V.mask) == (9, {0}, None)
    assert pickle.loads(pickle.dumps(V)).fingerprint == V.fingerprint
    others = [WordVocabulary(WORDS, lower=True), WordVocabulary(WORDS[::-1], lower=False), WordVocabulary(WORDS[:-1], lower=False)]  # fmt: skip  # noqa: E501
    assert len({V.fingerprint, *(other.fingerprint for other in others)}) == 4
