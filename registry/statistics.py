"""Confidence intervals of Spearman's ρ by resampling pairs. Registers nothing.

Correlations over subsets, in the three ways the field aggregates them. Registers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SEED = 0
"""Of the draws: an interval is the same every time."""
CELLS = 1 << 19
"""Resampled pairs held at a time."""


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
        aggregate: "all", "mean" or "wmean", as `correlation.aggregates` names them.
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
        drawn += share * _resampled(gold[part], predicted[part], resamples, rng)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(100 * low), float(100 * high)


def weighted_spearman(gold: Floats, predicted: Floats, counts: Integers) -> Floats:
    """Return (b,) ρ of the data sets in which pair i occurs `counts[:, i]` times; 0 where one side is constant.

    Nothing is sorted per data set: in the one order of the distinct values, mean ranks are sums of counts.

    Args:
        gold: (n,)
        predicted: (n,)
        counts: (b, n), rows of one sum.
    """
    first, second = _ranks(gold, counts), _ranks(predicted, counts)
    between = (counts * first * second).sum(axis=1)
    within = (counts * first**2).sum(axis=1) * (counts * second**2).sum(axis=1)
    found: Floats = np.divide(between, np.sqrt(within), out=np.zeros(len(counts)), where=within > 0)
    return found


def _resampled(gold: Floats, predicted: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    # The order of the pairs must not matter: equal pairs are interchangeable, so sorting makes it one and the same.
    order = np.lexsort((predicted, gold))
    gold, predicted, size = gold[order], predicted[order], len(gold)
    rows = max(1, CELLS // size)
    parts = [
        weighted_spearman(gold, predicted, _counts(rng, min(rows, resamples - start), size))
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(parts)


def _counts(rng: np.random.Generator, rows: int, size: int) -> Integers:
    """Return (rows, size): how often each of `size` pairs is drawn in `size` draws with replacement."""
    draws = rng.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
    return np.bincount(draws.ravel(), minlength=rows * size).reshape(rows, size)


def _ranks(values: Floats, counts: Integers) -> Floats:
    """Return (b, n) mean ranks less their mean, (N + 1)/2; what a pair that does not occur gets has no weight."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-np.inf))
    ties = np.diff(np.append(starts, len(values)))
    occurring = np.add.reduceat(counts[:, order], starts, axis=1)
    upto = occurring.cumsum(axis=1)
    ranks = upto - (occurring - 1) / 2 - (upto[:, -1:] + 1) / 2
    found = np.empty(counts.shape)
    found[:, order] = np.repeat(ranks, ties, axis=1)
    return found


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
