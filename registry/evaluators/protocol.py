"""SentEval's three ways to choose an L2 weight and to test with it, for any linear classifier. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from registry.errors import CseError
from registry.evaluators.folds import Rows, stratified
from registry.evaluators.labelled import Labelled


@dataclass(frozen=True)
class Fit:
    """Classifiers to train on the same rows.

    Args:
        train: Rows trained on.
        scored: Rows scored.
        stop: Rows that tell when to stop, for classifiers that stop early; None: some of `train`.
        l2: L2 weights, each of which makes a classifier.
    """

    train: Rows
    scored: Rows
    stop: Rows | None
    l2: Sequence[float]


class Classifier(Protocol):
    """A linear classifier."""

    def __call__(self, features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
        """Return, a list for each of `fits`, the share of its `scored` that each L2 weight gets right.

        Args:
            features: (n, D).
            labels: (n,) class numbers.
            fits: Known together, so that they can be computed together.
        """


class Accuracies(NamedTuple):
    """Shares × 100 of what is held out from training (`dev`), and of the test rows."""

    dev: float
    test: float


@dataclass(frozen=True)
class Trial:
    """One data set's vectors, and what its accuracies are measured with."""

    data: Labelled
    features: Tensor
    classifier: Classifier
    l2: Sequence[float]
    folds: int
    seed: int

    def accuracies(self) -> Accuracies:
        """Return them by the protocol that the data set's splits ask for."""
        splits = self.data.splits
        if "dev" in splits:
            return self._given(splits["train"], splits["dev"], splits["test"])
        whole = splits["train"] if "train" in splits else splits["all"]
        self._demand_rows(whole)
        return self._folded(whole, splits["test"]) if "test" in splits else self._nested(whole)

    def _given(self, train: Rows, dev: Rows, test: Rows) -> Accuracies:
        """Choose on `dev`, which also says when to stop."""
        l2, share = self._best(self._run([Fit(train, dev, dev, self.l2)]))
        return Accuracies(share, 100 * self._run([Fit(train, test, dev, (l2,))])[0][0])

    def _folded(self, train: Rows, test: Rows) -> Accuracies:
        """Choose by cross-validation on `train`."""
        l2, share = self._best(self._run(self._inner(train)))
        return Accuracies(share, 100 * self._run([Fit(train, test, None, (l2,))])[0][0])

    def _nested(self, rows: Rows) -> Accuracies:
        """Test on each fold in turn, after choosing by cross-validation on the others."""
        outer = stratified(self.data.classes[rows], self.folds, self.seed)
        trains = [rows[outer != fold] for fold in range(self.folds)]
        shares = self._run([fit for train in trains for fit in self._inner(train)])
        chosen = [self._best(shares[i * self.folds : (i + 1) * self.folds]) for i in range(self.folds)]
        last = [Fit(trains[i], rows[outer == i], None, (l2,)) for i, (l2, _) in enumerate(chosen)]
        tests = [share for (share,) in self._run(last)]
        return Accuracies(float(np.mean([share for _, share in chosen])), 100 * float(np.mean(tests)))

    def _inner(self, rows: Rows) -> list[Fit]:
        """Return the fits of a cross-validation within `rows`; they stop by the fold they are scored on."""
        inner = stratified(self.data.classes[rows], self.folds, self.seed)
        held = [rows[inner == fold] for fold in range(self.folds)]
        return [Fit(rows[inner != fold], held[fold], held[fold], self.l2) for fold in range(self.folds)]

    def _run(self, fits: Sequence[Fit]) -> list[list[float]]:
        return self.classifier(self.features, self.data.classes, fits)

    def _best(self, shares: Sequence[Sequence[float]]) -> tuple[float, float]:
        """Return the L2 weight of the largest mean share, and that × 100; at a tie of two decimals, the first."""
        means = 100 * np.mean(np.array(shares), axis=0)
        place = int(np.argmax(np.round(means, 2)))
        return self.l2[place], float(means[place])

    def _demand_rows(self, rows: Rows) -> None:
        classes, counts = np.unique(self.data.classes[rows], return_counts=True)
        least = int(counts.argmin())
        if counts[least] < self.folds:
            label = self.data.labels[rows[self.data.classes[rows] == classes[least]][0]]
            raise CseError(
                f"{self.data.name}: {counts[least]} rows have the label '{label}', too few for {self.folds} folds",
                f"set `folds` to {max(2, counts[least])} or less" if counts[least] > 1 else "fetch the data again",
            )
