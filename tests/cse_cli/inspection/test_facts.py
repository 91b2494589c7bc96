"""Equal sentences and the batches that contain one twice, near-duplicates, and the evaluation sets of a recipe."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest

from cse_cli.inspection.facts import LONG, Found, near_duplicates, read_once, sets_of_recipe
from cse_cli.recipe.load import load


def read(rows, sets=None):
    text = SimpleNamespace(cells=lambda _: iter(rows), rows=len(rows))
    return read_once(text, "text", sets or {}, lambda *_: None)


def of_counts(*counts: int) -> Found:
    return read([name for name, count in enumerate_names(counts) for _ in range(count)])


def enumerate_names(counts):
    return [(f"sentence {place}", count) for place, count in enumerate(counts)]


def test_counts_and_first_rows():
    found = read(["b", "a", "b ", "  b", "c d", "c\u3000 d"])
    assert (found.rows, found.copies) == (6, {1: 1, 2: 1, 3: 1})
    assert found.first.tolist() == [0, 1, 4]
    assert found.frequent == [(0, 3), (4, 2)]


@pytest.mark.slow
def test_a_text_of_many_rows():
    found = read([str(number % 70_000) for number in range(140_001)])
    assert (found.rows, len(found.first), found.copies) == (140_001, 70_000, {2: 69_999, 3: 1})
    assert found.frequent[0] == (0, 3)


def test_evaluation_sentences():
    sets = {"one/test": ["A dog.", "a DOG", "Two cats"], "two/dev": ["a dog", "birds"]}
    assert read(["A  dog. ", "a dog?", " Two cats", "A dog."], sets).leaks == {
        "one/test": ["A dog.", "Two cats"],
        "two/dev": [],
    }


@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 1, 1), (3, 2, 2, 1), (5,), (4, 4)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_of_all_batches_of_a_small_text(counts, size):
    rows = [name for name, count in enumerate_names(counts) for _ in range(count)]
    batches = list(itertools.combinations(rows, size))
    assert len(batches) == comb(len(rows), size)
    copies = sum(count for batch in batches for count in Counter(batch).values() if count > 1)
    assert of_counts(*counts).anchors_with_copy(size) == pytest.approx(copies / len(batches) / size, abs=1e-9)


def test_a_large_text_has_the_share_of_a_sum_over_pairs():
    # A million pairs of equal rows: each of the C(64, 2) pairs in a batch is one with the probability 1 / (N − 1).
    found = Found(2_000_000, {2: 1_000_000}, np.arange(0), [], {})
    assert found.anchors_with_copy(64) == pytest.approx(63 / 1_999_999, rel=1e-3)


def test_one_sentence_and_a_batch_that_is_too_large():
    assert of_counts(50).anchors_with_copy(64) == 1.0
    assert of_counts(*[1] * 50).anchors_with_copy(64) == pytest.approx(0.0, abs=1e-9)


def near(first: list[str], second: list[str]) -> bool:
    """Compare two sentences by leaving out each word of each."""
    one, other = ({tuple(words), *left_out(words)} for words in (first, second))
    return bool(first and second and one & other)


def left_out(words: list[str]) -> set[tuple[str, ...]]:
    return {(*words[:j], *words[j + 1 :]) for j in range(len(words))} if len(words) >= LONG else set()


@pytest.mark.parametrize("seed", range(3))
def test_near_duplicates_as_a_comparison_of_all_pairs_finds_them(seed):
    draw = random.Random(seed)
    sentences: list[list[str]] = [[]]
    for _ in range(60):
        sentence = [draw.choice("abcdef") for _ in range(draw.randint(1, LONG + 4))]
        sentences.append(sentence)
        for _ in range(draw.randrange(3)):
            place = draw.randrange(len(sentence))
            sentences.append([*sentence[:place], *draw.choice([[], ["x"], ["x", "y"]]), *sentence[place + 1 :]])
    expected = [
        any(near(one, other) for place, other in enumerate(sentences) if place != row)
        for row, one in enumerate(sentences)
    ]
    count, examples = near_duplicates([" ".join(sentence) for sentence in sentences])
    assert count == sum(expected)
    assert 10 < count < len(expected) - 10
    assert near(*(sentences[place] for place in examples))


def test_case_punctuation_and_the_length_from_which_a_word_may_differ():
    words = [f"word{number}" for number in range(LONG)]
    long, short = " ".join(words), " ".join(words[:-1])
    assert near_duplicates(["A dog runs.", "a DOG, runs", "a cat runs"]) == (2, [0, 1])
    assert near_duplicates([long, short.replace("word3 ", "")])[0] == 0
    assert near_duplicates([short, short.replace("word3", "other")])[0] == 0
    assert near_duplicates([long, long.replace("word3", "other")])[0] == 2
    assert near_duplicates([long, short])[0] == 2
    assert near_duplicates([]) == near_duplicates(["!", "?"]) == (0, [])


def test_the_sets_of_a_recipe_are_those_of_its_evaluators_and_of_the_package(folder):
    (folder / "pairs.tsv").write_text("score\tsentence1\tsentence2\n1\ta b\tc\n2\ta  b\td\n", encoding="utf-8")
    changes = ["evaluators.own.name=sts", "evaluators.own.file=pairs.tsv", "evaluators.own.split=test"]
    sets = sets_of_recipe(load("quickstart", changes).recipe)
    assert set(sets) == {"stsb_open/dev", "stsb_open/test", "pairs.tsv"}
    assert sets["pairs.tsv"] == ["a b", "c", "d"]


def test_sets_that_are_not_on_this_machine_are_left_out():
    changes = ["evaluators.far.name=sts", "evaluators.far.dataset=sickr"]
    assert set(sets_of_recipe(load("quickstart", changes).recipe)) == {"stsb_open/dev", "stsb_open/test"}


@pytest.mark.slow
def test_the_training_text_is_no_evaluation_set():
    changes = [
        "evaluators.own.name=retrieval_at_k", "evaluators.own.dataset=tatoeba_open", "evaluators.own.split=train",
        "evaluators.own.query_column=text", "evaluators.own.positive_column=translation",
    ]  # fmt: skip
    assert set(sets_of_recipe(load("quickstart", changes).recipe)) == {"stsb_open/dev", "stsb_open/test"}
