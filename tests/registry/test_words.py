"""Words of a sentence, and the word overlap of two."""

import math

import pytest

from registry.words import word_overlap, words


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
