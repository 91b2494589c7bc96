"""Correlations with gold scores over subsets and over resampled pairs.

Subsets are aggregated in the three common ways. A resample consists of pairs sampled with replacement, and ties have
their mean rank. Resamples are not sorted: cumulative sums of the counts of the pairs, in the order of the original
values, are the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

AGGREGATES = ("all", "mean", "wmean")


def aggregates(subsets: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return "spearman_all", "spearman_mean", …, "pearson_wmean" × 100 of pairs in subsets."""
    members: dict[str, list[int]] = {}
    for index, subset in enumerate(subsets):
        members.setdefault(subset, []).append(index)
    parts = [correlations([gold[i] for i in part], [predicted[i] for i in part]) for part in members.values()]
    sizes = [len(part) for part in members.values()]
    values: dict[str, float] = {}
    for name, whole in correlations(gold, predicted).items():
        values[f"{name}_all"] = 100 * whole
        values[f"{name}_mean"] = 100 * sum(part[name] for part in parts) / len(parts)
        values[f"{name}_wmean"] = 100 * sum(n * part[name] for n, part in zip(sizes, parts, strict=True)) / sum(sizes)
    return values


def correlations(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return Spearman's ρ (ties have their mean rank) and Pearson's r. Both are 0 if one side is constant."""
    from scipy.stats import pearsonr, spearmanr

    if min(gold) == max(gold) or min(predicted) == max(predicted):
        return {"spearman": 0.0, "pearson": 0.0}
    return {
        "spearman": float(spearmanr(gold, predicted).statistic),
        "pearson": float(pearsonr(gold, predicted).statistic),
    }


SEED = 0
"""Seed of the resamples of an interval."""
CELLS = 1 << 17
"""Pairs times resamples that are processed at a time, which fit a processor's cache."""


def spearman_interval(
    subsets: Sequence[str],
    scores: tuple[Sequence[float], Sequence[float]],
    aggregate: str,
    resamples: int,
    level: float,
) -> tuple[float, float]:
    """Return the ends of the percentile interval of an aggregate's ρ, × 100.

    Args:
        subsets: Subset of each pair. "all" samples from all pairs, the others separately from each subset.
        scores: Gold scores and predicted scores.
        aggregate: "all", "mean" or "wmean".
        resamples: Number of resamples.
        level: Share of resamples inside the interval.
    """
    gold, predicted = (np.asarray(side, dtype=np.float64) for side in scores)
    parts = [np.ones(len(gold), dtype=bool)]
    if aggregate != "all":
        names = np.asarray(subsets)
        parts = [names == name for name in sorted(set(subsets))]
    shares = [part.sum() / len(gold) if aggregate == "wmean" else 1 / len(parts) for part in parts]
    rng = np.random.default_rng(SEED)
    drawn = np.zeros(resamples)
    for part, share in zip(parts, shares, strict=True):
        # Sorted pairs: the interval does not depend on the order of the data.
        order = np.lexsort((predicted[part], gold[part]))
        drawn += share * resampled_spearman(gold[part][order], [predicted[part][order]], resamples, rng)[0]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(100 * low), float(100 * high)


def resampled_spearman(gold: Floats, predicted: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    """Return (methods, resamples) Spearman's ρ of resampled pairs. All methods have the same resamples."""
    size = len(gold)
    orders = [_Order(values) for values in (gold, *predicted)]
    width = max(1, CELLS // max(size, 1))
    rho = np.empty((len(predicted), resamples))
    for start in range(0, resamples, width):
        columns = min(width, resamples - start)
        draws = rng.integers(size, size=(columns, size)) + size * np.arange(columns)[:, None]
        drawn = np.bincount(draws.ravel(), minlength=columns * size).reshape(columns, size)
        counts = np.ascontiguousarray(drawn.T, dtype=np.float64)  # (n, b) of each pair in each resample
        rho[:, start : start + columns] = _of_orders(orders, counts)
    return rho


def spearman(gold: Floats, predicted: Sequence[Floats]) -> Floats:
    """Return (methods,) Spearman's ρ of the pairs. It is 0 if one side is constant."""
    return _of_orders([_Order(values) for values in (gold, *predicted)], np.ones((len(gold), 1)))[:, 0]


def _of_orders(orders: Sequence[_Order], counts: Floats) -> Floats:
    """Return (methods, b) ρ of resamples that contain pair i `counts[i]` times, 0 if one side is constant.

    All columns of `counts` (n, b) have the same sum.
    """
    gold, *methods = orders
    ranks, squares = gold.ranks(counts)
    weighted = np.empty_like(ranks)
    weighted[gold.order] = ranks
    weighted *= counts
    rho = np.zeros((len(methods), counts.shape[1]))
    for row, method in zip(rho, methods, strict=True):
        own, within = method.ranks(counts)
        between = np.einsum("ij,ij->j", weighted[method.order], own)
        np.divide(between, np.sqrt(squares * within), out=row, where=squares * within > 0)
    return rho


class _Order:
    """Order of values, and the first position of each distinct value in it."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        self.starts = np.flatnonzero(np.diff(values[self.order], prepend=-np.inf))
        self.sizes = np.diff(np.append(self.starts, len(values)))
        self.tied = len(self.starts) < len(values)

    def ranks(self, counts: Floats) -> tuple[Floats, Floats]:
        """Return (n, b) ranks minus their mean, in this order, and (b,) the sum of their squares."""
        drawn = counts[self.order]
        if self.tied:
            drawn = np.add.reduceat(drawn, self.starts, axis=0)
        upto = drawn.cumsum(axis=0)
        ranks = upto - (drawn - 1) / 2 - (upto[-1] + 1) / 2
        squares = np.einsum("ij,ij,ij->j", drawn, ranks, ranks)
        return (np.repeat(ranks, self.sizes, axis=0) if self.tied else ranks), squares
