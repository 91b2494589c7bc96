"""Correlations of scores with gold scores: over subsets, and over resampled pairs. Registers nothing.

Subsets are aggregated in the three ways the field has. A resample draws pairs with replacement and ranks them anew,
ties by their mean rank. Nothing is sorted again: how often each pair was drawn, taken in the one order of the distinct
values, gives the ranks by sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

AGGREGATES = ("all", "mean", "wmean")


def aggregates(subsets: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return "spearman_all", "spearman_mean", …, "pearson_wmean" × 100 of pairs that belong to subsets."""
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
    """Return Spearman's ρ (ties share their mean rank) and Pearson's r; 0 where one side is constant."""
    from scipy.stats import pearsonr, spearmanr

    if min(gold) == max(gold) or min(predicted) == max(predicted):
        return {"spearman": 0.0, "pearson": 0.0}
    return {
        "spearman": float(spearmanr(gold, predicted).statistic),
        "pearson": float(pearsonr(gold, predicted).statistic),
    }


SEED = 0
"""Of the draws of an interval, so that it is the same every time."""
CELLS = 1 << 17
"""Pairs times resamples held at a time: what stays in a processor's cache."""


def spearman_interval(
    subsets: Sequence[str],
    scores: tuple[Sequence[float], Sequence[float]],
    aggregate: str,
    resamples: int,
    level: float,
) -> tuple[float, float]:
    """Return the ends of the percentile interval of an aggregate's ρ, × 100.

    Args:
        subsets: Subset of each pair. "all" draws from all pairs together, the others from each subset by itself.
        scores: Gold scores and predicted ones.
        aggregate: "all", "mean" or "wmean", as `aggregates` names them.
        resamples: Data sets drawn.
        level: Share of them between the ends.
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
        # Sorted pairs: the interval must not depend on the order that the data comes in.
        order = np.lexsort((predicted[part], gold[part]))
        drawn += share * resampled_spearman(gold[part][order], [predicted[part][order]], resamples, rng)[0]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(100 * low), float(100 * high)


def resampled_spearman(gold: Floats, predicted: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    """Return (methods, resamples) Spearman's ρ of resampled pairs; every method has the same draws.

    Args:
        gold: (n,)
        predicted: Of each method (n,), in the order of `gold`.
        resamples: Data sets of n pairs drawn.
        rng: Draws the pairs.
    """
    size = len(gold)
    orders = [_Order(values) for values in (gold, *predicted)]
    width = max(1, CELLS // max(size, 1))
    rho = np.empty((len(predicted), resamples))
    for start in range(0, resamples, width):
        counts = _counts(rng, size, min(width, resamples - start))
        rho[:, start : start + counts.shape[1]] = _weighted_spearman(orders, counts)
    return rho


def spearman(gold: Floats, predicted: Sequence[Floats]) -> Floats:
    """Return (methods,) Spearman's ρ of the pairs as they are; 0 where one side is constant."""
    return weighted_spearman(gold, predicted, np.ones((len(gold), 1)))[:, 0]


def weighted_spearman(gold: Floats, predicted: Sequence[Floats], counts: Floats) -> Floats:
    """Return (methods, b) ρ of the data sets in which pair i occurs `counts[i]` times; 0 where one side is constant.

    Args:
        gold: (n,)
        predicted: Of each method (n,).
        counts: (n, b), columns of one sum.
    """
    return _weighted_spearman([_Order(values) for values in (gold, *predicted)], counts)


def _weighted_spearman(orders: Sequence[_Order], counts: Floats) -> Floats:
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
    """The order of a series' values, and where each distinct value begins in it."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        self.starts = np.flatnonzero(np.diff(values[self.order], prepend=-np.inf))
        self.sizes = np.diff(np.append(self.starts, len(values)))
        self.tied = len(self.starts) < len(values)

    def ranks(self, counts: Floats) -> tuple[Floats, Floats]:
        """Return (n, b) ranks less their mean, in this order, and (b,) the sum of their squares.

        Args:
            counts: (n, b), how often each pair occurs.
        """
        drawn = counts[self.order]
        if self.tied:
            drawn = np.add.reduceat(drawn, self.starts, axis=0)
        upto = drawn.cumsum(axis=0)
        ranks = upto - (drawn - 1) / 2 - (upto[-1] + 1) / 2
        squares = np.einsum("ij,ij,ij->j", drawn, ranks, ranks)
        return (np.repeat(ranks, self.sizes, axis=0) if self.tied else ranks), squares


def _counts(rng: np.random.Generator, size: int, width: int) -> Floats:
    """Return (size, width): how often each of `size` pairs is drawn in `size` draws."""
    draws = rng.integers(size, size=(width, size)) + size * np.arange(width)[:, None]
    counts = np.bincount(draws.ravel(), minlength=width * size).reshape(width, size)
    return np.ascontiguousarray(counts.T, dtype=np.float64)
