import pickle

import torch

from registry.encoders.word_vectors import WordVocabulary
from registry.tokens import Pieces, Sample

WORDS = ["the", "cat", ",", "'", "t", "don", "U.S.", "can't"]
V = WordVocabulary(WORDS, lower=False)


def words(text, vocabulary=V, length=99):
    return [vocabulary.words[i - 1] for i in vocabulary.ids([text], length)[0]]


def test_pieces_that_are_words_stay_whole_and_others_are_cut():
    assert words("the cat, don't") == ["the", "cat", ",", "don", "'", "t"]
    assert words("the U.S. can't") == ["the", "U.S.", "can't"]
    assert words("U.S., THE dog  \u00a0cat\u2028the") == [",", "cat", "the"]
    assert words("THE Cat", WordVocabulary(["the", "cat"], lower=True)) == ["the", "cat"]
    assert words("") == words("dog !") == []


def test_lengths_count_known_words():
    assert words("dog the dog cat the", length=2) == ["the", "cat"]


def test_padding_and_masks():
    tokens = V.pad([[1, 2, 3], [], [4]])
    assert tokens.ids.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert tokens.mask.tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert tokens.positions.tolist() == [[0, 1, 2]] * 3
    assert tokens.types.sum() == 0
    assert V.pad([[], []]).ids.shape == (2, 0)
    assert V.pad([]).ids.shape == (0, 0)


def test_pairs_and_labels():
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


def test_size_specials_and_fingerprint():
    assert (V.size, V.specials, V.mask) == (9, {0}, None)
    assert pickle.loads(pickle.dumps(V)).fingerprint == V.fingerprint
    others = [WordVocabulary(WORDS, lower=True), WordVocabulary(WORDS[::-1], lower=False), WordVocabulary(WORDS[:-1], lower=False)]  # fmt: skip  # noqa: E501
    assert len({V.fingerprint, *(other.fingerprint for other in others)}) == 4
