"""SentEval's protocol for linear classifiers on frozen embeddings.

It has labeled data in SentEval's order, the stratified folds of scikit-learn, and three ways to select an L2 weight.
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

from registry.errors import CseError
from registry.evaluators.pairs import evenly_spaced, one_line
from registry.resources import catalog
from registry.types import Encode

Rows = NDArray[np.int64]
"""Row indices, or an integer for each row."""


@dataclass(frozen=True)
class Labeled:
    """All rows of a data set, concatenated by split.

    Args:
        name: Name of the data set.
        splits: Split → its row indices.
        labels: Label of each row.
        texts: Sentences of each row: one, or the two of a pair. They can be empty.
    """

    name: str
    splits: Mapping[str, Rows]
    labels: Sequence[str]
    texts: Sequence[tuple[str, ...]]

    @cached_property
    def classes(self) -> Rows:
        """Class number of each row."""
        return np.unique(np.array(self.labels), return_inverse=True)[1].astype(np.int64)

    def features(self, encode: Encode) -> Tensor:
        """Return (n, D) embeddings u of sentences, or (n, 2D) features |u − v|, u ∘ v of pairs, with 0 for NaN."""
        sides = list(zip(*self.texts, strict=True))
        vectors = encode([text for side in sides for text in side]).float().nan_to_num()
        if len(sides) == 1:
            return vectors
        left, right = vectors.chunk(2)
        return torch.cat([(left - right).abs(), left * right], dim=1)


def read_labeled(name: str, limit: int | None = None) -> Labeled:
    """Return every split of a labeled data set, sorted by number of words and label, because folds depend on the order.

    With `limit`, each split has about this many rows, the same number of each label.

    Raises:
        CseError: If a split has fewer than two labels.
        MissingError: If the data set is not on this machine and cannot be downloaded.
    """
    splits, labels, texts, start = {}, [], [], 0
    for split in catalog.entry(name).splits:
        rows = sorted(_rows(name, split), key=lambda row: ([len(text.split()) for text in row[1]], row[0]))
        found_labels = {label for label, _ in rows}
        if len(found_labels) < 2:
            found = f"all {len(rows)} rows have the label '{rows[0][0]}'" if rows else "no rows"
            raise CseError(
                f"data set '{name}/{split}' is incomplete: {found}",
                f"run `cse data download {name} --force`",
                code="evaluators.too_few_rows",
            )
        if limit is not None:
            of_label = ([row for row in rows if row[0] == label] for label in sorted(found_labels))
            rows = [row for same in of_label for row in evenly_spaced(same, -(-limit // len(found_labels)))]
        splits[split] = np.arange(start, start + len(rows))
        labels += [label for label, _ in rows]
        texts += [text for _, text in rows]
        start += len(rows)
    return Labeled(name, splits, labels, texts)


def _rows(name: str, split: str) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (row["label"], tuple(one_line(cell) for column, cell in row.items() if column != "label"))
        for row in catalog.open_text(name, split)
    ]


@dataclass(frozen=True)
class Fit:
    """Classifiers that are trained on the same rows.

    Args:
        train: Training rows.
        scored: Rows for the accuracy.
        stop: Rows for early stopping, or None to use a part of `train`.
        l2: L2 weights, one for each classifier.
    """

    train: Rows
    scored: Rows
    stop: Rows | None
    l2: Sequence[float]


class Classifier(Protocol):
    """A linear classifier."""

    def __call__(self, features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
        """Return the accuracy on the `scored` rows, one list for each of `fits` with one value for each L2 weight.

        Args:
            features: (n, D).
            labels: (n,) class numbers.
            fits: All fits, so that they can be computed together.
        """


class Accuracies(NamedTuple):
    """Accuracy × 100 on rows held out from training (`dev`) and on test rows."""

    dev: float
    test: float


@dataclass(frozen=True)
class LinearProbe:
    """Features of a data set, and the settings of the classifiers."""

    data: Labeled
    features: Tensor
    classifier: Classifier
    l2: Sequence[float]
    folds: int
    seed: int

    def accuracies(self) -> Accuracies:
        """Return the accuracies by the protocol for the splits of the data set."""
        splits = self.data.splits
        if "dev" in splits:
            train, dev, test = splits["train"], splits["dev"], splits["test"]  # dev is also used for early stopping
            l2, share = self._best(self._run([Fit(train, dev, dev, self.l2)]))
            return Accuracies(share, 100 * self._run([Fit(train, test, dev, (l2,))])[0][0])
        whole = splits["train"] if "train" in splits else splits["all"]
        self._require_rows(whole)
        if "test" not in splits:
            return self._nested(whole)
        l2, share = self._best(self._run(self._inner(whole)))
        return Accuracies(share, 100 * self._run([Fit(whole, splits["test"], None, (l2,))])[0][0])

    def _nested(self, rows: Rows) -> Accuracies:
        """Test on each fold, after selection by cross-validation on the others."""
        outer = stratified(self.data.classes[rows], self.folds, self.seed)
        trains = [rows[outer != fold] for fold in range(self.folds)]
        shares = self._run([fit for train in trains for fit in self._inner(train)])
        chosen = [self._best(shares[i * self.folds : (i + 1) * self.folds]) for i in range(self.folds)]
        last = [Fit(trains[i], rows[outer == i], None, (l2,)) for i, (l2, _) in enumerate(chosen)]
        tests = [share for (share,) in self._run(last)]
        return Accuracies(float(np.mean([share for _, share in chosen])), 100 * float(np.mean(tests)))

    def _inner(self, rows: Rows) -> list[Fit]:
        """Return the fits of a cross-validation within `rows`. The held-out fold is also used for early stopping."""
        inner = stratified(self.data.classes[rows], self.folds, self.seed)
        held = [rows[inner == fold] for fold in range(self.folds)]
        return [Fit(rows[inner != fold], held[fold], held[fold], self.l2) for fold in range(self.folds)]

    def _run(self, fits: Sequence[Fit]) -> list[list[float]]:
        return self.classifier(self.features, self.data.classes, fits)

    def _best(self, shares: Sequence[Sequence[float]]) -> tuple[float, float]:
        """Return the first L2 weight with the best mean accuracy to two decimals, and that mean × 100."""
        means = 100 * np.mean(np.array(shares), axis=0)
        place = int(np.argmax(np.round(means, 2)))
        return self.l2[place], float(means[place])

    def _require_rows(self, rows: Rows) -> None:
        classes, counts = np.unique(self.data.classes[rows], return_counts=True)
        least = int(counts.argmin())
        if counts[least] < self.folds:
            label = self.data.labels[rows[self.data.classes[rows] == classes[least]][0]]
            action = f"set folds = {counts[least]} or less"
            if counts[least] == 1:
                action = f"run `cse data download {self.data.name} --force`"
            raise CseError(
                f"data set '{self.data.name}' has only {counts[least]} rows with the label '{label}' for "
                f"{self.folds} folds",
                action,
                code="evaluators.too_few_rows",
            )


def stratified(labels: Rows, folds: int, seed: int) -> Rows:
    """Return the test fold of each row, with every class distributed evenly over the folds.

    The folds equal those of `StratifiedKFold(folds, shuffle=True, random_state=seed)` since scikit-learn 0.22, which
    SentEval's results in the papers are based on.
    """
    values, first = np.unique(labels, return_index=True)
    classes = values[np.argsort(first)]  # classes in the order of their first occurrence
    # Rows sorted by class are dealt to the folds in turn, which gives the number of rows of each class in each fold.
    dealt = np.repeat(np.arange(len(classes)), [np.sum(labels == c) for c in classes])
    generator = np.random.RandomState(seed)
    found = np.empty(len(labels), dtype=np.int64)
    for number, value in enumerate(classes):
        share = [int(np.sum(dealt[fold::folds] == number)) for fold in range(folds)]
        own = np.repeat(np.arange(folds), share)
        generator.shuffle(own)
        found[labels == value] = own
    return found
