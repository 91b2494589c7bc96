"""SentEval's protocol for linear classifiers on frozen embeddings, and the two classifiers of `transfer`.

The protocol has labeled data in SentEval's order, the stratified folds of scikit-learn, and three ways to select an L2
weight. The classifiers train all folds and L2 weights together.

`early_stopped` is SentEval's classifier: a linear layer, trained by Adam with early stopping. All classifiers have the
same seed, so classifiers with the same number of rows have the same initial weights and shuffles. They are trained in
lockstep, with one batched matrix product for all of them and all their L2 weights.

`logistic` is trained to the optimum. It minimizes mean cross-entropy + λ/2 ‖(W, b)‖² over its own rows, the objective
of SentEval's Adam. All classifiers share one matrix of rows, so one product is enough, and rows that do not belong to a
classifier have weight 0. With H = X′X over all rows, no Hessian exceeds c·H/n + λI (Böhning 1992; c = 1/4 for two
classes, 1/2 for more). A step of gradient / (c·s/n + λ) in the eigenbasis of H, with its eigenvalues s, therefore never
overshoots and needs no line search. Nesterov's momentum, reset if it points uphill (O'Donoghue and Candès 2015),
accelerates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
    """
    splits, labels, texts, start = {}, [], [], 0
    for split in catalog.entry(name).splits:
        read = (
            (row["label"], tuple(one_line(cell) for column, cell in row.items() if column != "label"))
            for row in catalog.open_text(name, split)
        )
        rows = sorted(read, key=lambda row: ([len(text.split()) for text in row[1]], row[0]))
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


Classifier = Callable[[Tensor, Rows, Sequence[Fit]], list[list[float]]]
"""Function of features (n, D), class numbers (n,) and all fits, so that they can be computed together.

It returns the accuracy on the `scored` rows, one list for each of the fits with one value for each L2 weight."""


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


BATCH = 64
TOGETHER = 20
"""Number of fits trained in lockstep, each with all its L2 weights."""
PASSES = 4
"""Passes over the rows between two evaluations on the rows for early stopping (SentEval's `epoch_size`)."""
TENACITY = 5
"""Maximum number of evaluations without a new best. The count is never reset."""
MAX_PASSES = 200
"""Number of passes after which training stops."""
HELD_OUT = 0.05
"""Share of the training rows for early stopping if no other rows are given."""
RATE, DECAY, SQUARE_DECAY, EPSILON = 1e-3, 0.9, 0.999, 1e-8
"""Parameters of Adam, with torch's defaults."""


def early_stopped(features: Tensor, labels: Rows, fits: Sequence[Fit], seed: int) -> list[list[float]]:
    """Train linear layers as SentEval with `nhid` 0, adam, batches of 64, tenacity 5 and epoch size 4: a `Classifier`.

    The seed is that of the initial weights and of every shuffle.
    """
    rows = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    targets = torch.from_numpy(labels).to(features.device)
    groups: dict[tuple[int, bool, int], list[int]] = {}
    for place, fit in enumerate(fits):
        groups.setdefault((len(fit.train), fit.stop is None, len(fit.l2)), []).append(place)
    found: dict[int, list[float]] = {}
    for places in groups.values():
        for start in range(0, len(places), TOGETHER):
            part = places[start : start + TOGETHER]
            training = LockstepAdam(rows, targets, [fits[place] for place in part], seed)
            found |= zip(part, training.shares(), strict=True)
    return [found[place] for place in range(len(fits))]


class LockstepAdam:
    """Adam for F fits of equal shape in lockstep, with R L2 weights each and C classes.

    Args:
        rows: (n, D + 1) features. The last column is 1.
        targets: (n,) class numbers.
        fits: Fits with the same numbers of rows and of L2 weights, all with or all without rows for early stopping.
    """

    def __init__(self, rows: Tensor, targets: Tensor, fits: Sequence[Fit], seed: int) -> None:
        self.rows, self.targets, self.fits = rows, targets, fits
        self.shuffles = np.random.RandomState(seed)
        self.train, self.stop = self._split()
        self.classes = int(targets.max()) + 1
        self.wanted = torch.nn.functional.one_hot(targets, self.classes).to(rows)
        first = first_weights(rows.shape[1] - 1, self.classes, seed).to(rows)
        count = len(fits[0].l2)
        self.weights = first.repeat(len(fits), 1, count)  # (F, D + 1, R·C)
        self.decay = rows.new_tensor([fit.l2 for fit in fits]).repeat_interleave(self.classes, dim=1)[:, None]
        self.moment, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.steps = 0
        self.live = list(range(len(fits)))
        self.best = np.full((len(fits), count), -1.0)
        self.failures = np.zeros((len(fits), count), dtype=int)
        self.active = np.ones((len(fits), count), dtype=bool)
        self.kept = self.weights.clone()

    def _split(self) -> tuple[Tensor, list[Tensor]]:
        """Return (F, n) rows for training, and each fit's rows for early stopping."""
        train = torch.from_numpy(np.stack([fit.train for fit in self.fits]))
        given = [fit.stop for fit in self.fits if fit.stop is not None]
        stop = [torch.from_numpy(rows) for rows in given]
        if not stop:
            order = torch.from_numpy(self.shuffles.permutation(train.shape[1]))
            held = max(1, int(HELD_OUT * len(order)))
            train, stop = train[:, order[held:]], list(train[:, order[:held]])
        return train.to(self.rows.device), [rows.to(self.rows.device) for rows in stop]

    def shares(self) -> list[list[float]]:
        """Train, and return the accuracy of each classifier on the scored rows of its fit."""
        passes = 0
        while self.live and passes <= MAX_PASSES:
            for _ in range(PASSES):
                order = torch.from_numpy(self.shuffles.permutation(self.train.shape[1])).to(self.rows.device)
                for start in range(0, len(order), BATCH):
                    self._step(self.train[:, order[start : start + BATCH]])
            passes += PASSES
            self._keep_best()
        scored = [torch.from_numpy(fit.scored).to(self.rows.device) for fit in self.fits]
        return [self._right(self.kept[i], rows).tolist() for i, rows in enumerate(scored)]

    def _step(self, batch: Tensor) -> None:
        """Take one step of Adam with the (F, b) rows of a batch."""
        size = batch.shape[1]
        seen = self.rows[batch]
        scores = torch.bmm(seen, self.weights).view(*batch.shape, -1, self.classes)
        errors = scores.softmax(dim=3).sub_(self.wanted[batch].unsqueeze(2)).flatten(2).div_(size)
        gradient = torch.bmm(seen.mT, errors).addcmul_(self.weights, self.decay)
        self.steps += 1
        self.moment.lerp_(gradient, 1 - DECAY)
        self.square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        root = (self.square / (1 - SQUARE_DECAY**self.steps)).sqrt_().add_(EPSILON)
        self.weights.addcdiv_(self.moment, root, value=-RATE / (1 - DECAY**self.steps))

    def _keep_best(self) -> None:
        """Store the weights of each new best, and stop classifiers without a new best for too long."""
        for place, fit in enumerate(self.live):
            shares = self._right(self.weights[place], self.stop[fit]).cpu().numpy()
            better = self.active[fit] & (shares > self.best[fit])
            self.best[fit][better] = shares[better]
            columns = torch.from_numpy(np.repeat(better, self.classes)).to(self.rows.device)
            self.kept[fit][:, columns] = self.weights[place][:, columns]
            failed = self.active[fit] & ~better
            self.active[fit] &= ~(failed & (self.failures[fit] >= TENACITY))
            self.failures[fit] += failed
        running = [place for place, fit in enumerate(self.live) if self.active[fit].any()]
        if len(running) < len(self.live):
            self.live = [self.live[place] for place in running]
            self.train, self.weights, self.decay = self.train[running], self.weights[running], self.decay[running]
            self.moment, self.square = self.moment[running], self.square[running]

    def _right(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Return (R,): the accuracy on `rows` with the weights (D + 1, R·C)."""
        guess = (self.rows[rows] @ weights).view(len(rows), -1, self.classes).argmax(dim=2)
        return guess.eq(self.targets[rows].unsqueeze(1)).double().mean(dim=0)


def first_weights(width: int, classes: int, seed: int) -> Tensor:
    """Return (width + 1, classes): `nn.Linear`'s initial weights after `torch.manual_seed(seed)`, the bias last."""
    generator = torch.Generator().manual_seed(seed)
    bound = width**-0.5
    weight = torch.empty(classes, width).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator)
    return torch.cat([weight.T, bias[None]])


MAX_SCORES = 2**23
"""Maximum number of elements of a matrix of scores."""
CHECK_EVERY = 10
"""Number of steps between two checks for convergence."""
TOLERANCE = 1e-9
"""Stopping criterion in nats: g′Pg, with gradient g and step sizes P."""
MAX_STEPS = 3000


def logistic(features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
    """Train linear layers to the optimum: a `Classifier`."""
    problem = Problem(features, torch.from_numpy(labels).to(features.device))
    jobs = [(place, l2) for place, fit in enumerate(fits) for l2 in fit.l2]
    size = max(1, MAX_SCORES // problem.wanted.numel())
    found: list[list[float]] = [[] for _ in fits]
    for start in range(0, len(jobs), size):
        part = jobs[start : start + size]
        weights = problem.solve([(fits[place].train, l2) for place, l2 in part])
        for number, (place, _) in enumerate(part):
            found[place].append(problem.right(weights[:, number], fits[place].scored))
    return found


class Problem:
    """Prediction of `targets` (n,) from `features` (n, D), in the eigenbasis of the second moments of the rows.

    Two classes need O = 1 output, that of the second class. C classes need O = C. `rows` are (n, E) with E = D + 1,
    because the bias is penalized, as by SentEval. `moments` (E,) are the eigenvalues of X′X, and `wanted` (n, O) the
    target values of the outputs.
    """

    def __init__(self, features: Tensor, targets: Tensor) -> None:
        padded = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        moments, basis = torch.linalg.eigh(padded.double().mT @ padded.double())
        wanted = torch.nn.functional.one_hot(targets).to(features)
        self.two = wanted.shape[1] == 2
        self.rows: Tensor = padded @ basis.to(features)
        self.moments: Tensor = moments.clamp(min=0).to(features)
        self.targets, self.wanted = targets, wanted[:, 1:] if self.two else wanted

    def solve(self, jobs: Sequence[tuple[Rows, float]]) -> Tensor:
        """Return (E, J, O) weights for the rows and the L2 weight of each job."""
        descent = Descent(self, jobs)
        found, live = torch.zeros_like(descent.weights), torch.arange(len(jobs), device=self.rows.device)
        for step in range(1, MAX_STEPS + 1):
            left = descent.step()
            if step % CHECK_EVERY and step < MAX_STEPS:
                continue
            done = left < TOLERANCE if step < MAX_STEPS else torch.ones_like(left, dtype=torch.bool)
            found[:, live[done]] = descent.weights[:, done]
            live = live[~done]
            if not len(live):
                break
            descent.keep(~done)
        return found

    def right(self, weights: Tensor, scored: Rows) -> float:
        """Return the accuracy of the weights (E, O) on `scored`."""
        rows = torch.from_numpy(scored).to(self.rows.device)
        scores = self.rows[rows] @ weights
        guess = (scores[:, 0] > 0).long() if self.two else scores.argmax(dim=1)
        return float((guess == self.targets[rows]).double().mean())


class Descent:
    """Accelerated gradient descent of J classifiers.

    Weights have shape (E, J, O), shares (n, J), rates (E, J, 1), and the others (J,).
    """

    def __init__(self, problem: Problem, jobs: Sequence[tuple[Rows, float]]) -> None:
        self.problem = problem
        rows = problem.rows
        shares = np.zeros((len(rows), len(jobs)), dtype=np.float64)
        for number, (train, _) in enumerate(jobs):
            shares[train, number] = 1 / len(train)
        self.shares = torch.from_numpy(shares).to(rows)
        # For two outputs with opposite weights ±w/2, λ/2 of both squares is λ/4 of the square of w.
        self.l2 = rows.new_tensor([l2 for _, l2 in jobs]) * (0.5 if problem.two else 1)
        bound = (0.25 if problem.two else 0.5) * problem.moments[:, None] * self.shares.amax(dim=0) + self.l2
        self.rates = bound.reciprocal()[:, :, None]
        self.weights = rows.new_zeros(rows.shape[1], len(jobs), problem.wanted.shape[1])
        self.ahead = self.weights
        self.age = rows.new_ones(len(jobs))

    def step(self) -> Tensor:
        """Take one step, and return (J,) g′Pg before it."""
        rows, flat = self.problem.rows, self.ahead.flatten(1)
        scores = (rows @ flat).view(len(rows), *self.ahead.shape[1:])
        guess = scores.sigmoid_() if self.problem.two else scores.softmax(dim=2)
        errors = guess.sub_(self.problem.wanted[:, None]).mul_(self.shares[:, :, None])
        gradient = (rows.mT @ errors.flatten(1)).view_as(self.ahead).addcmul_(self.ahead, self.l2[:, None])
        move = self.rates * gradient
        weights = self.ahead - move
        forward = weights - self.weights
        uphill = (gradient * forward).sum(dim=(0, 2)) > 0
        age = self.age.masked_fill(uphill, 1)
        self.age = (1 + (1 + 4 * age * age).sqrt()) / 2
        self.ahead = weights.addcmul(forward, ((age - 1) / self.age)[:, None])
        self.weights = weights
        return gradient.mul_(move).sum(dim=(0, 2))

    def keep(self, which: Tensor) -> None:
        """Continue only with the classifiers selected by (J,) `which`."""
        self.weights, self.ahead, self.rates = self.weights[:, which], self.ahead[:, which], self.rates[:, which]
        self.shares, self.l2, self.age = self.shares[:, which], self.l2[which], self.age[which]
