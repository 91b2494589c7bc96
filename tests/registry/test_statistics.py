"""ρ of pairs and of resampled pairs: the same as ranking every resample anew; known coverage; any order."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from registry import statistics
from registry.statistics import resampled_spearman, spearman, spearman_interval


def resampled(gold, predicted, resamples, seed):
    return resampled_spearman(gold, predicted, resamples, np.random.default_rng(seed))


def data(n: int = 60) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    gold = np.round(rng.uniform(0, 5, n) * 2) / 2
    return gold, [gold + rng.normal(size=n), np.round(gold + rng.normal(size=n)), rng.normal(size=n)]


def test_the_same_draws_every_time_for_every_method_and_whatever_fits_in_memory(monkeypatch):
    gold, methods = data()
    first = resampled(gold, methods, 40, (1,))
    assert np.array_equal(first, resampled(gold, methods, 40, (1,)))
    assert not np.array_equal(first, resampled(gold, methods, 40, (2,)))
    monkeypatch.setattr(statistics, "CELLS", 3 * len(gold))
    assert np.array_equal(first, resampled(gold, methods, 40, (1,)))
    gold, (method, *_) = data()
    first, second = resampled(gold, [method, method], 30, (1,))
    assert np.array_equal(first, second)
    alone = resampled(gold, [method], 30, (1,))[0]
    assert np.array_equal(first, alone)


def weighted(gold, predicted, counts):
    orders = [statistics._Order(values) for values in (gold, predicted)]
    return statistics._of_orders(orders, counts.T.astype(float))[0]


def drawn(size, rows, seed, kinds):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.integers(0, kinds, size).astype(float), rng.normal(size=size).round(1)
    counts = np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(rows)])
    return gold, predicted, counts


def test_value_by_hand_and_scipys():
    # Pairs (gold, predicted): (1, 1), (2, 3), (3, 2). All once: ρ = 1 − 6·2/24 = 0.5.
    # The first twice, the last once: ranks 1.5 1.5 3 on both sides, ρ = 1. The last two: −1. One alone: 0.
    counts = np.array([[1, 1, 1], [2, 0, 1], [0, 2, 1], [0, 3, 0]])
    found = weighted(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]), counts)
    assert found == pytest.approx([0.5, 1.0, -1.0, 0.0])
    gold, methods = data()
    expected = [spearmanr(gold, method).statistic for method in methods]
    assert spearman(gold, methods) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("size", "kinds"), [(2, 1), (3, 2), (8, 5), (60, 1000), (60, 2)])
def test_equals_scipy_on_the_pairs_repeated(size, kinds):
    gold, predicted, counts = drawn(size, 20, size, kinds)
    for row, found in zip(counts, weighted(gold, predicted, counts), strict=True):
        left, right = np.repeat(gold, row), np.repeat(predicted, row)
        constant = left.min() == left.max() or right.min() == right.max()
        assert found == pytest.approx(0.0 if constant else spearmanr(left, right).statistic, abs=1e-12)


@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_any_order_of_the_pairs_gives_the_same(aggregate):
    gold, predicted, _ = drawn(80, 1, 2, 5)
    subsets = [f"s{i % 3}" for i in range(80)]
    plain = spearman_interval(subsets, (gold, predicted), aggregate, 200, 0.95)
    order = np.random.default_rng(9).permutation(80)
    again = spearman_interval([subsets[i] for i in order], (gold[order], predicted[order]), aggregate, 200, 0.95)
    assert again == plain
    assert plain[0] < plain[1]


def test_wider_levels_single_subsets_and_a_constant_side():
    gold, predicted, _ = drawn(100, 1, 3, 5)
    ends = [spearman_interval([""] * 100, (gold, predicted), "all", 500, level) for level in (0.5, 0.9, 0.99)]
    assert ends[2][0] < ends[1][0] < ends[0][0] < ends[0][1] < ends[1][1] < ends[2][1]
    gold, predicted, _ = drawn(40, 1, 4, 5)
    ends = {spearman_interval(["x"] * 40, (gold, predicted), how, 100, 0.95) for how in ("all", "mean", "wmean")}
    assert len(ends) == 1
    assert spearman_interval([""] * 5, ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0] * 5), "all", 50, 0.95) == (0.0, 0.0)


@pytest.mark.slow
def test_subsets_are_drawn_by_themselves_and_the_truth_is_covered():
    """Each subset is perfectly ranked, so no draw within it is anything but 1; across them ρ varies."""
    gold = np.array([*range(20), *range(20)], dtype=float)
    predicted = np.array([*range(20), *range(100, 120)], dtype=float)
    subsets = ["a"] * 20 + ["b"] * 20
    assert spearman_interval(subsets, (gold, predicted), "mean", 100, 0.95) == pytest.approx((100.0, 100.0))
    reversed_second = np.array([*range(20), *range(20, 0, -1)], dtype=float)
    assert spearman_interval(subsets, (gold, reversed_second), "mean", 100, 0.95) == pytest.approx((0.0, 0.0))
    low, high = spearman_interval(subsets, (gold, predicted), "all", 100, 0.95)
    assert low < high < 90
    # Normal pairs with r = 0.6 have ρ = 6/π · asin(0.3); of 200 intervals at 90 % about 180 hold it.
    truth, rng, held = 100 * 6 / math.pi * math.asin(0.3), np.random.default_rng(5), 0
    for _ in range(200):
        x, noise = rng.normal(size=(2, 150))
        low, high = spearman_interval([""] * 150, (x, 0.6 * x + 0.8 * noise), "all", 300, 0.9)
        held += low <= truth <= high
    assert 168 <= held <= 192
