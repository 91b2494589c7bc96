"""Words of a sentence, and the word overlap of two."""

import math

import pytest

from registry.words import bm25, word_overlap, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 5 pm - NOW!", ["it", "s", "5", "pm", "now"]),
        ("snake_case, co-op", ["snake", "case", "co", "op"]),
        ("Größe ÉTÉ", ["größe", "été"]),
        ("我有3个BMW。", ["我", "有", "3", "个", "bmw"]),
        ("ネコです", ["ネ", "コ", "で", "す"]),
        (" … !", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


def test_overlap_by_hand():
    # 2 common words of 3 and 4.
    assert word_overlap("A dog runs.", "the dog, a CAT") == pytest.approx(2 / math.sqrt(12))
    assert word_overlap("dog dog dog", "Dog") == 1.0
    assert word_overlap("dog", "cat") == 0.0
    assert word_overlap("!", "!") == 0.0


def test_bm25_by_hand():
    documents = ["a a b", "b c", "", "d"]  # lengths 3, 2, 0 and 1, the mean 1.5
    rare = math.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    common = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    scale = [1.2 * (0.25 + 0.75 * length / 1.5) for length in (3, 2, 0, 1)]
    found = [list(scores) for scores in bm25(["a b", "A, a!", "x"], documents)]
    assert found[0] == pytest.approx(
        [rare * 2.2 * 2 / (2 + scale[0]) + common * 2.2 / (1 + scale[0]), common * 2.2 / (1 + scale[1]), 0, 0]
    )
    assert found[1] == pytest.approx([rare * 2.2 * 2 / (2 + scale[0]), 0, 0, 0])
    assert found[2] == [0, 0, 0, 0]
