"""ρ of resampled pairs: the same as ranking every resample anew, ties and all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from registry import statistics
from registry.statistics import resampled_spearman, spearman


def resampled(gold, predicted, resamples, seed):
    return resampled_spearman(gold, predicted, resamples, np.random.default_rng(seed))


def data(n: int = 60) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    gold = np.round(rng.uniform(0, 5, n) * 2) / 2
    return gold, [gold + rng.normal(size=n), np.round(gold + rng.normal(size=n)), rng.normal(size=n)]


def test_as_they_are_it_is_scipys_spearman():
    gold, methods = data()
    expected = [spearmanr(gold, method).statistic for method in methods]
    assert spearman(gold, methods) == pytest.approx(expected, abs=1e-14)


def test_a_value_by_hand():
    # ranks 1, 2, 3 against 1, 3, 2: 1 − 6 · (0 + 1 + 1) / (3 · 8) = 0.5
    assert spearman(np.array([1.0, 2.0, 3.0]), [np.array([0.1, 0.9, 0.5])])[0] == pytest.approx(0.5)


def test_each_resample_is_ranked_anew(monkeypatch):
    gold, methods = data()
    drawn = []
    counts = statistics._counts

    def remembered(*arguments):
        drawn.append(counts(*arguments))
        return drawn[-1]

    monkeypatch.setattr(statistics, "_counts", remembered)
    found = resampled(gold, methods, 5, (1,))
    times = np.concatenate(drawn, axis=1).astype(int)
    for resample in range(5):
        rows = np.repeat(np.arange(len(gold)), times[:, resample])
        for place, method in enumerate(methods):
            assert found[place, resample] == pytest.approx(spearmanr(gold[rows], method[rows]).statistic, abs=1e-12)


def test_the_same_every_time_and_whatever_fits_in_memory(monkeypatch):
    gold, methods = data()
    first = resampled(gold, methods, 40, (1,))
    assert np.array_equal(first, resampled(gold, methods, 40, (1,)))
    assert not np.array_equal(first, resampled(gold, methods, 40, (2,)))
    monkeypatch.setattr(statistics, "CELLS", 3 * len(gold))
    assert np.array_equal(first, resampled(gold, methods, 40, (1,)))


def test_every_method_has_the_same_draws():
    gold, (method, *_) = data()
    first, second = resampled(gold, [method, method], 30, (1,))
    assert np.array_equal(first, second)
    alone = resampled(gold, [method], 30, (1,))[0]
    assert np.array_equal(first, alone)


def test_a_constant_side_counts_as_0():
    gold = np.array([1.0, 1.0, 1.0, 1.0])
    assert resampled(gold, [np.arange(4.0)], 10, (1,)).tolist() == [[0.0] * 10]
