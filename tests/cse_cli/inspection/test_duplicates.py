"""Equal sentences, and how many batches contain one twice."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import comb

import pytest

from cse_cli.inspection.duplicates import Duplicates, find_duplicates


def of_counts(*counts: int) -> Duplicates:
    return find_duplicates(name for name, count in enumerate_names(counts) for _ in range(count)).duplicates


def enumerate_names(counts):
    return [(f"sentence {place}", count) for place, count in enumerate(counts)]


def test_counts_and_first_rows():
    found = find_duplicates(["b", "a", "b ", "  b", "c d", "c\u3000 d"])
    assert found.duplicates == Duplicates(rows=6, distinct=3, copies={1: 1, 2: 1, 3: 1})
    assert found.duplicates.repeats == 3
    assert found.first.tolist() == [0, 1, 4]
    assert found.frequent == [(0, 3), (4, 2)]


def test_text_of_several_blocks():
    rows = [str(number % 70_000) for number in range(140_001)]
    found = find_duplicates(rows)
    assert found.duplicates == Duplicates(rows=140_001, distinct=70_000, copies={2: 69_999, 3: 1})
    assert found.frequent[0] == (0, 3)


@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 1, 1), (3, 2, 2, 1), (5,), (4, 4)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_of_all_batches_of_a_small_text(counts, size):
    rows = [name for name, count in enumerate_names(counts) for _ in range(count)]
    batches = list(itertools.combinations(rows, size))
    assert len(batches) == comb(len(rows), size)
    duplicated = sum(len(set(batch)) < size for batch in batches)
    copies = sum(count for batch in batches for count in Counter(batch).values() if count > 1)
    found = of_counts(*counts)
    assert found.batches_with_duplicates(size) == pytest.approx(duplicated / len(batches), abs=1e-9)
    assert found.anchors_with_copy(size) == pytest.approx(copies / len(batches) / size, abs=1e-9)


def test_simulated_batches():
    counts = [1] * 900 + [2] * 30 + [10] * 4
    rows = [name for name, count in enumerate_names(counts) for _ in range(count)]
    draw = random.Random(0)
    batches = [draw.sample(rows, 64) for _ in range(4000)]
    found = of_counts(*counts)
    simulated = sum(len(set(batch)) < 64 for batch in batches) / len(batches)
    copies = sum(count for batch in batches for count in Counter(batch).values() if count > 1)
    # Four standard errors of a share near 0.6, and of about 2 rows in 64.
    assert found.batches_with_duplicates(64) == pytest.approx(simulated, abs=4 * (0.25 / 4000) ** 0.5)
    assert found.anchors_with_copy(64) == pytest.approx(copies / len(batches) / 64, rel=0.1)


def test_a_large_text_has_the_share_of_a_sum_over_pairs():
    # A million pairs of equal rows: each of the C(64, 2) pairs in a batch is one with the probability 1 / (N − 1).
    found = Duplicates(rows=2_000_000, distinct=1_000_000, copies={2: 1_000_000})
    assert found.batches_with_duplicates(64) == pytest.approx(comb(64, 2) / 1_999_999, rel=1e-3)
    assert found.anchors_with_copy(64) == pytest.approx(63 / 1_999_999, rel=1e-3)


def test_one_sentence_and_a_batch_that_is_too_large():
    found = of_counts(50)
    assert (found.batches_with_duplicates(64), found.anchors_with_copy(64)) == (1.0, 1.0)
    assert of_counts(*[1] * 50).batches_with_duplicates(64) == pytest.approx(0.0, abs=1e-9)
