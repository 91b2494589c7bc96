"""SentEval's protocol for linear classifiers on frozen embeddings. Registers nothing.

Labelled data in SentEval's order, the stratified folds that scikit-learn makes, and three ways to choose an L2 weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from registry import catalogue
from registry.errors import CseError
from registry.evaluators.pairs import one_line
from registry.types import Encode

Rows = NDArray[np.int64]
"""Row numbers, or a number for each row."""


@dataclass(frozen=True)
class Labelled:
    """All rows of a data set, split after split.

    Args:
        name: Of the data set.
        splits: Split → its row numbers.
        labels: One a row.
        texts: The sentences of each row: one, or the two of a pair; may be empty.
    """

    name: str
    splits: Mapping[str, Rows]
    labels: Sequence[str]
    texts: Sequence[tuple[str, ...]]

    @cached_property
    def classes(self) -> Rows:
        """The number of each row's class."""
        return np.unique(np.array(self.labels), return_inverse=True)[1].astype(np.int64)

    def features(self, encode: Encode) -> Tensor:
        """Return (n, D) vectors of single sentences, (n, 2D) of pairs: |u − v| beside u ∘ v. NaN becomes 0."""
        sides = list(zip(*self.texts, strict=True))
        vectors = encode([text for side in sides for text in side]).float().nan_to_num()
        if len(sides) == 1:
            return vectors
        left, right = vectors.chunk(2)
        return torch.cat([(left - right).abs(), left * right], dim=1)


def read_labelled(name: str) -> Labelled:
    """Return every split of a labelled data set, each by number of words and label: folds depend on the order.

    Raises:
        CseError: All labels of a split are the same.
        MissingError: The data set is not on this machine and cannot be fetched.
    """
    splits, labels, texts, start = {}, [], [], 0
    for split in catalogue.entry(name).splits:
        rows = sorted(_rows(name, split), key=lambda row: ([len(text.split()) for text in row[1]], row[0]))
        if len({label for label, _ in rows}) < 2:
            found = f"all {len(rows)} rows have the label '{rows[0][0]}'" if rows else "there are no rows"
            raise CseError(
                f"{name}/{split}: {found}: nothing to tell apart", "fetch the data again: it is cut or changed"
            )
        splits[split] = np.arange(start, start + len(rows))
        labels += [label for label, _ in rows]
        texts += [text for _, text in rows]
        start += len(rows)
    return Labelled(name, splits, labels, texts)


def _rows(name: str, split: str) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (row["label"], tuple(one_line(cell) for column, cell in row.items() if column != "label"))
        for row in catalogue.open_text(name, split)
    ]


@dataclass(frozen=True)
class Fit:
    """Classifiers to train on the same rows.

    Args:
        train: Rows trained on.
        scored: Rows scored.
        stop: Rows that decide when to stop, for classifiers that stop early; None: some of `train`.
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
        self._require_rows(whole)
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

    def _require_rows(self, rows: Rows) -> None:
        classes, counts = np.unique(self.data.classes[rows], return_counts=True)
        least = int(counts.argmin())
        if counts[least] < self.folds:
            label = self.data.labels[rows[self.data.classes[rows] == classes[least]][0]]
            raise CseError(
                f"{self.data.name}: {counts[least]} rows have the label '{label}', too few for {self.folds} folds",
                f"set `folds` to {max(2, counts[least])} or less" if counts[least] > 1 else "fetch the data again",
            )


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
