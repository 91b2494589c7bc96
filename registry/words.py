"""Words of a sentence, and the word overlap of two sentences: a baseline without an encoder."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

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


def bm25(queries: Sequence[str], documents: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Yield the Okapi BM25 score of every document for each query, with k₁ = 1.2 and b = 0.75.

    Σ_w log(1 + (n − n_w + ½)/(n_w + ½)) · f·(k₁ + 1) / (f + k₁·(1 − b + b·|d|/|d̄|)) over the distinct `words` w of the
    query, where f is the frequency of w in the document d, n the number of documents and n_w those with w.

    Source: Robertson and Zaragoza 2009, *The Probabilistic Relevance Framework: BM25 and Beyond*, section 3.5, with
    the positive logarithm of Lucene.
    """
    counted = [Counter(words(document)) for document in documents]
    lengths = np.array([count.total() for count in counted], dtype=float)
    scale = 1.2 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1))
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, count in enumerate(counted):
        for word, times in count.items():
            found[word].append((place, times))
    for query in queries:
        scores = np.zeros(len(documents))
        for word in set(words(query)) & found.keys():
            places, times = np.array(found[word]).T
            rarity = math.log1p((len(documents) - len(places) + 0.5) / (len(places) + 0.5))
            scores[places] += rarity * 2.2 * times / (times + scale[places])
        yield scores
