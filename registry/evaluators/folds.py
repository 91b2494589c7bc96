"""Stratified folds, the very ones scikit-learn makes. Registers nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Row numbers, or a number for each row."""


def stratified(labels: Rows, folds: int, seed: int) -> Rows:
    """Return the number of the fold that tests each row; every class is spread over the folds as evenly as can be.

    The same folds, for the same order of rows, as `StratifiedKFold(folds, shuffle=True, random_state=seed)` since
    scikit-learn 0.22, which SentEval's figures of the papers were made with.
    """
    values, first = np.unique(labels, return_index=True)
    classes = values[np.argsort(first)]  # classes draw in the order in which they first occur
    # Rows by class, dealt to the folds like cards: that settles how many of each class a fold gets.
    dealt = np.repeat(np.arange(len(classes)), [np.sum(labels == c) for c in classes])
    generator = np.random.RandomState(seed)
    found = np.empty(len(labels), dtype=np.int64)
    for number, value in enumerate(classes):
        share = [int(np.sum(dealt[fold::folds] == number)) for fold in range(folds)]
        own = np.repeat(np.arange(folds), share)
        generator.shuffle(own)
        found[labels == value] = own
    return found
