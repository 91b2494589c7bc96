"""The difference over documents and seeds together, by hand and by simulation, and the words of the verdict."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from cse_cli.adapt.judge import Difference, difference, verdict


def of(values):
    return {"reciprocal_rank": np.asarray(values, dtype=float), "answer": np.arange(len(values), dtype=float)}


def test_one_seed_is_a_t_test_over_documents():
    rng = np.random.default_rng(0)
    before, after = rng.random(50), rng.random(50)
    found = difference(of(before), [of(after)])
    low, high = ttest_1samp(after - before, 0).confidence_interval()
    expected = [100 * value for value in (before.mean(), (after - before).mean(), low, high)]
    assert [found.before, found.value, found.low, found.high] == pytest.approx(expected)


def test_queries_with_the_same_answer_count_once():
    rng = np.random.default_rng(0)
    before, after = rng.random(50), rng.random(50)
    twice = [
        {"reciprocal_rank": np.repeat(values, 2), "answer": np.repeat(np.arange(50.0), 2)} for values in (before, after)
    ]
    once, found = difference(of(before), [of(after)]), difference(twice[0], [twice[1]])
    assert [found.value, found.low, found.high] == pytest.approx([once.value, once.low, once.high])


def test_seeds_that_differ_equally_for_all_documents_are_a_t_test_over_seeds():
    shifts = [0.1, 0.2, 0.4]
    found = difference(of(np.zeros(1000)), [of(np.full(1000, shift)) for shift in shifts])
    reach = t.ppf(0.975, 2) * np.std(shifts, ddof=1) / 3**0.5
    assert found.high - found.value == pytest.approx(100 * reach)


@pytest.mark.slow
@pytest.mark.parametrize("of_seed", [0.0, 0.01, 0.05])
def test_of_equal_methods_at_most_one_in_twenty_differs(of_seed):
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(1000):
        effects = rng.normal(0, of_seed, 3)[:, None] + rng.normal(0, 0.1, 200) + rng.normal(0, 0.1, (3, 200))
        found = difference(of(np.zeros(200)), [of(each) for each in effects])
        wrong += not found.low <= 0 <= found.high
    assert wrong <= 65  # at most 50 expected, standard error 7


def test_a_correlation_is_compared_on_the_same_pairs():
    rng = np.random.default_rng(0)
    gold = rng.random(300)
    near, far = gold + rng.normal(0, 0.1, 300), gold + rng.normal(0, 1, 300)
    found = difference({"gold": gold, "cosine": far}, [{"gold": gold, "cosine": near}] * 3)
    assert found.low > 0
    same = difference({"gold": gold, "cosine": far}, [{"gold": gold, "cosine": far}] * 3)
    assert [same.value, same.low, same.high] == pytest.approx([0, 0, 0], abs=1e-12)


SURE, UNSURE, LOSS = Difference(50, 2, 1, 3), Difference(50, 1, -1, 3), Difference(50, -2, -3, -1)


@pytest.mark.parametrize(
    ("queries", "kept", "word"),
    [
        (SURE, UNSURE, "better"),
        (SURE, LOSS, "forgets"),
        (UNSURE, SURE, "undecided"),
        (LOSS, SURE, "worse"),
    ],
)
def test_the_word_of_the_verdict(queries, kept, word):
    assert verdict({"queries": queries, "kept": kept}, "whitened")[0] == word
