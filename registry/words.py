"""Words of a sentence, and the word overlap of two sentences: a baseline without an encoder."""

from __future__ import annotations

import math
import re

_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Kana and Chinese characters. Sentences in these scripts have no spaces, so that each character is a word."""

_WORD = re.compile(rf"[{_SINGLE}]|[^\W_{_SINGLE}]+")


def words(text: str) -> list[str]:
    """Return the lower-case words and numbers of a sentence, without punctuation. Chinese characters are words.

    Examples:
        >>> words("It's 5 pm - NOW!"), words("我有3个")
        (['it', 's', '5', 'pm', 'now'], ['我', '有', '3', '个'])
    """
    return _WORD.findall(text.lower())


def word_overlap(first: str, second: str) -> float:
    """Return the cosine of the binary word vectors of two sentences, from 0 to 1.

    |A ∩ B| / √(|A| · |B|) for the sets A and B of their `words`. It is 0 if one of them has no words.

    Source: the baseline of SemEval 2012 task 6 (Agirre et al. 2012, §4), which splits at white space instead.
    """
    a, b = set(words(first)), set(words(second))
    return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0
