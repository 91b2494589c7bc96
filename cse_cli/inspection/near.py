"""Near-duplicates: sentences with the same words, and long sentences that differ in one word."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cse_cli.inspection.duplicates import EXAMPLES

LONG = 10
"""Number of words from which on two sentences may differ in one word. "He is a doctor" and "He is a nurse" may not."""

SEED = 0
"""Seed of the codes of words."""

_BASE = np.uint64(0x9E3779B97F4A7C15)
"""Odd base of the codes of sentences, so that it has an inverse modulo 2^64."""

_ANY = np.uint64(0xD1B54A32D192ED03)
"""Code of a word that is replaced by any other."""

Codes = NDArray[np.uint64]


@dataclass(frozen=True)
class WordRows:
    """Words of sentences as numbers.

    Args:
        words: Numbers of the words of all sentences, one after another.
        ends: End of each sentence in `words`.
        size: Number of distinct words.
    """

    words: NDArray[np.int32]
    ends: NDArray[np.int64]
    size: int

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> WordRows:
        """Return the numbers of the words of sentences, in the order of their first use."""
        known: dict[str, int] = {}
        words, ends = array("i"), array("q")
        for sentence in sentences:
            words.extend([known.setdefault(word, len(known)) for word in sentence])
            ends.append(len(words))
        return cls(np.array(words, dtype=np.int32), np.array(ends, dtype=np.int64), len(known))

    def of_row(self, row: int) -> list[int]:
        """Return the words of one sentence."""
        return [int(word) for word in self.words[(self.ends[row - 1] if row else 0) : self.ends[row]]]


def is_near(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two sentences are near-duplicates.

    They are if they have the same words in the same order, or if both have at least `LONG` words and one word that is
    added, removed or replaced makes them equal. A sentence without words has no near-duplicates.
    """
    if first == second:
        return bool(first)
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) < LONG or len(longer) - len(shorter) > 1:
        return False
    place = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    rest = place + 1 if len(shorter) == len(longer) else place
    return shorter[rest:] == longer[place + 1 :]


def near_duplicates(rows: WordRows) -> NDArray[np.bool_]:
    """Return for each of n sentences whether another one is a near-duplicate in the sense of `is_near`.

    The code of a sentence is Σ_j code(word_j) · b^j modulo 2^64. That of the sentence with word j replaced by any, or
    without word j, follows from sums over the words before j and after j. Two sentences that differ in one replaced
    word share a code of the first kind; one that has a word more than the other has its code among those of the second
    kind. The time is that of sorting the words' codes.
    """
    sizes = np.diff(rows.ends, prepend=0)
    found = np.zeros(len(sizes), dtype=np.bool_)
    found[sizes > 0] = _same_words(_Coded.of(rows, sizes > 0))
    coded = _Coded.of(rows, sizes >= LONG)
    if len(coded.sizes):
        found[sizes >= LONG] |= _one_replaced(coded) | _one_removed(coded)
    return found


def example_pairs(rows: WordRows, found: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first few near-duplicates, as pairs of different sentences."""
    near = np.flatnonzero(found).tolist()
    pairs: list[tuple[int, int]] = []
    for row in near:
        if len(pairs) == EXAMPLES:
            break
        if any(row in pair for pair in pairs):
            continue
        words = rows.of_row(row)
        pairs.append((row, next(other for other in near if other != row and is_near(words, rows.of_row(other)))))
    return pairs


@dataclass(frozen=True)
class _Coded:
    """Codes of some sentences.

    Args:
        sizes: (n,) number of words.
        terms: (W,) code(word_j) · b^j of all words.
        places: (W,) position j of each word in its sentence.
        whole: (n,) code of each sentence.
        powers: b^j for each position j.
    """

    sizes: NDArray[np.int64]
    terms: Codes
    places: NDArray[np.int32]
    whole: Codes
    powers: Codes

    @classmethod
    def of(cls, rows: WordRows, chosen: NDArray[np.bool_]) -> _Coded:
        """Return the codes of the chosen sentences, none of which is empty."""
        all_sizes = np.diff(rows.ends, prepend=0)
        words, sizes = rows.words[np.repeat(chosen, all_sizes)], all_sizes[chosen]
        starts = np.cumsum(sizes) - sizes
        places = (np.arange(len(words)) - np.repeat(starts, sizes)).astype(np.int32)
        table = np.random.default_rng(SEED).integers(0, 2**64, size=rows.size, dtype=np.uint64)
        powers = np.full(sizes.max(initial=0) + 1, _BASE)
        powers[:1] = 1
        powers = np.cumprod(powers, dtype=np.uint64)
        terms = table[words] * powers[places]
        return cls(sizes, terms, places, np.add.reduceat(terms, starts) if len(starts) else terms, powers)

    def any_of_row(self, of_words: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each sentence whether something is true of one of its words."""
        return np.logical_or.reduceat(of_words, np.cumsum(self.sizes) - self.sizes)


def _same_words(coded: _Coded) -> NDArray[np.bool_]:
    return _is_in(coded.whole, _repeated(coded.whole))


def _one_replaced(coded: _Coded) -> NDArray[np.bool_]:
    codes = np.repeat(coded.whole, coded.sizes)
    codes -= coded.terms
    codes += _ANY * coded.powers[coded.places]
    return coded.any_of_row(_is_in(codes, _repeated(codes)))


def _one_removed(coded: _Coded) -> NDArray[np.bool_]:
    """Return whether a sentence without one of its words equals another, or is equal to another without one."""
    through = np.cumsum(coded.terms, dtype=np.uint64)
    starts = np.cumsum(coded.sizes) - coded.sizes
    before = through[starts] - coded.terms[starts]
    inverse = np.uint64(pow(int(_BASE), -1, 2**64))
    through -= np.repeat(before, coded.sizes)  # within each sentence
    codes = through - coded.terms + (np.repeat(coded.whole, coded.sizes) - through) * inverse
    codes[np.repeat(coded.sizes == LONG, coded.sizes)] = 0  # would be too short
    longer = coded.any_of_row(_is_in(codes, np.unique(coded.whole)))
    return longer | _is_in(coded.whole, np.unique(codes[np.repeat(longer, coded.sizes)]))


def _repeated(codes: Codes) -> Codes:
    """Return the codes that occur several times, sorted."""
    ordered = np.sort(codes)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _is_in(codes: Codes, known: Codes) -> NDArray[np.bool_]:
    """Return whether each code is among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(codes), dtype=np.bool_)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, codes), len(known) - 1)] == codes
    return found
