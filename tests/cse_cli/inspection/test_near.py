"""Near-duplicates: found by codes of words, compared with an edit distance that is written out."""

from __future__ import annotations

import random
from functools import cache

import pytest

from cse_cli.inspection.near import LONG, WordRows, example_pairs, is_near, near_duplicates
from tests.support.chosen import these


def distance(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the edit distance of two sentences in words."""

    @cache
    def of(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        change = of(i - 1, j - 1) + (first[i - 1] != second[j - 1])
        return min(change, of(i - 1, j) + 1, of(i, j - 1) + 1)

    return of(len(first), len(second))


def near(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    away = distance(first, second)
    return bool(first) and (away == 0 or (away == 1 and min(len(first), len(second)) >= LONG))


def edited(sentence: list[str], draw: random.Random) -> list[str]:
    place, copy = draw.randrange(len(sentence)), list(sentence)
    kind = draw.randrange(4)
    if kind == 0:
        copy[place] = draw.choice("abcdef")
    elif kind == 1:
        del copy[place]
    elif kind == 2:
        copy.insert(place, draw.choice("abcdef"))
    else:
        copy[place], copy[-1] = copy[-1], copy[place]
    return copy


def planted(seed: int) -> list[list[str]]:
    """Return sentences of few words around the length from which on a word may differ, with changed copies."""
    draw = random.Random(seed)
    made: list[list[str]] = [[]]
    for _ in range(60):
        sentence = [draw.choice("abcdef") for _ in range(draw.randint(1, LONG + 4))]
        made += [sentence, *(edited(sentence, draw) for _ in range(draw.randrange(3)))]
    return made


@pytest.mark.parametrize("seed", these([0], range(5)))
def test_as_an_edit_distance_finds_them(seed):
    sentences = planted(seed)
    rows = WordRows.of(sentences)
    numbers = [tuple(rows.of_row(row)) for row in range(len(sentences))]
    expected = [
        any(near(one, other) for place, other in enumerate(numbers) if place != row) for row, one in enumerate(numbers)
    ]
    assert near_duplicates(rows).tolist() == expected
    assert 10 < sum(expected) < len(expected) - 10


@pytest.mark.parametrize("seed", range(3))
def test_two_sentences(seed):
    numbers = [[ord(word) for word in sentence] for sentence in planted(seed)]
    for one in numbers[:40]:
        for other in numbers[:40]:
            assert is_near(one, other) == near(tuple(one), tuple(other)), (one, other)


def test_the_length_from_which_a_word_may_differ():
    words = [str(number) for number in range(LONG)]
    longer = [*words[:4], "x", *words[4:]]
    shorter = words[:-1]
    assert near_duplicates(WordRows.of([words, longer])).tolist() == [True, True]
    assert near_duplicates(WordRows.of([words, shorter])).tolist() == [False, False]
    assert near_duplicates(WordRows.of([shorter, [*shorter[:-1], "x"]])).tolist() == [False, False]
    assert near_duplicates(WordRows.of([words, [*words[:-1], "x"]])).tolist() == [True, True]


def test_examples_are_different_pairs():
    rows = WordRows.of([["a"], ["b"], ["a"], ["c"], ["b"], ["a"]])
    assert example_pairs(rows, near_duplicates(rows)) == [(0, 2), (1, 4), (5, 0)]


def test_no_sentence_and_empty_ones():
    assert near_duplicates(WordRows.of([])).tolist() == []
    assert near_duplicates(WordRows.of([[], []])).tolist() == [False, False]
