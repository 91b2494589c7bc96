"""Spearman's ρ of many methods on the same resampled sentence pairs.

Every resample draws pairs with replacement and ranks them anew, ties by their mean rank. Nothing is sorted again: how
often each pair was drawn, taken in the one order of the distinct values, gives the ranks by sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CELLS = 1 << 17
"""Pairs times resamples held at a time: what stays in a processor's cache."""


def resampled(gold: Floats, predicted: Sequence[Floats], resamples: int, seed: Sequence[int]) -> Floats:
    """Return (methods, resamples) ρ; every method has the same draws.

    Args:
        gold: (n,)
        predicted: Of each method (n,), in the order of `gold`.
        resamples: Data sets of n pairs drawn.
        seed: Of the draws: the same every time.
    """
    size = len(gold)
    rng = np.random.default_rng(seed)
    orders = [_Order(values) for values in (gold, *predicted)]
    width = max(1, CELLS // max(size, 1))
    found = np.empty((len(predicted), resamples))
    for start in range(0, resamples, width):
        counts = _counts(rng, size, min(width, resamples - start))
        found[:, start : start + counts.shape[1]] = _correlations(orders, counts)
    return found


def correlations(gold: Floats, predicted: Sequence[Floats]) -> Floats:
    """Return (methods,) ρ of the pairs as they are."""
    once = np.ones((len(gold), 1))
    return np.asarray(_correlations([_Order(values) for values in (gold, *predicted)], once)[:, 0])


class _Order:
    """The order of a series' values, and where each distinct one begins in it."""

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


def _correlations(orders: Sequence[_Order], counts: Floats) -> Floats:
    """Return (methods, b); the first order is that of the gold scores. 0 where one side is constant."""
    gold, *methods = orders
    ranks, squares = gold.ranks(counts)
    weighted = np.empty_like(ranks)
    weighted[gold.order] = ranks
    weighted *= counts
    found = np.zeros((len(methods), counts.shape[1]))
    for row, method in zip(found, methods, strict=True):
        own, within = method.ranks(counts)
        between = np.einsum("ij,ij->j", weighted[method.order], own)
        np.divide(between, np.sqrt(squares * within), out=row, where=squares * within > 0)
    return found


def _counts(rng: np.random.Generator, size: int, width: int) -> Floats:
    """Return (size, width): how often each of `size` pairs is drawn in `size` draws."""
    draws = rng.integers(size, size=(width, size)) + size * np.arange(width)[:, None]
    counts = np.bincount(draws.ravel(), minlength=width * size).reshape(width, size)
    return np.ascontiguousarray(counts.T, dtype=np.float64)
