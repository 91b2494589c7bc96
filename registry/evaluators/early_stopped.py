"""SentEval's own classifier: a linear layer under Adam that stops early, many at a time. Registers nothing.

In SentEval every classifier starts from the same seed. Those with equally many rows therefore start from the same
weights and see the same shuffles, and can walk in step: one batched product for all of them and all their L2 weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from registry.evaluators.folds import Rows
from registry.evaluators.protocol import Fit

BATCH = 64
PASSES = 4
"""Passes over the rows between two looks at those that tell when to stop (`epoch_size`)."""
TENACITY = 5
"""Looks without a new best that are forgiven, in all: the count is never set back."""
MOST = 200
"""Passes after which no more begin."""
HELD = 0.05
"""Share of the rows that tells when to stop, where no rows are given for it."""
RATE, DECAY, SQUARE_DECAY, EPSILON = 1e-3, 0.9, 0.999, 1e-8
"""Adam's, as torch sets them."""


class EarlyStopped:
    """Linear layers trained as SentEval does with `nhid` 0, adam, batches of 64, tenacity 5 and epoch size 4.

    Args:
        seed: Of the first weights and of every shuffle.
        together: Fits computed in step, each with all of its L2 weights.
    """

    def __init__(self, seed: int = 1111, together: int = 20) -> None:
        self.seed = seed
        self.together = together

    def __call__(self, features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
        """Return, a list for each of `fits`, the share of its `scored` that each L2 weight gets right."""
        rows = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        targets = torch.from_numpy(labels).to(features.device)
        alike: dict[tuple[int, bool, int], list[int]] = {}
        for place, fit in enumerate(fits):
            alike.setdefault((len(fit.train), fit.stop is None, len(fit.l2)), []).append(place)
        found: dict[int, list[float]] = {}
        for places in alike.values():
            for start in range(0, len(places), self.together):
                part = places[start : start + self.together]
                walk = Walk(rows, targets, [fits[place] for place in part], self.seed)
                found |= zip(part, walk.shares(), strict=True)
        return [found[place] for place in range(len(fits))]


class Walk:
    """F fits alike, in step; R is the number of L2 weights of each, C that of classes.

    Args:
        rows: (n, D + 1), the last column ones.
        targets: (n,) class numbers.
        fits: With equally many rows, all with or all without rows to stop by, with equally many L2 weights.
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
        """Return (F, n) rows to train on, and each fit's rows to stop by."""
        train = torch.from_numpy(np.stack([fit.train for fit in self.fits]))
        given = [fit.stop for fit in self.fits if fit.stop is not None]
        stop = [torch.from_numpy(rows) for rows in given]
        if not stop:
            order = torch.from_numpy(self.shuffles.permutation(train.shape[1]))
            held = max(1, int(HELD * len(order)))
            train, stop = train[:, order[held:]], list(train[:, order[:held]])
        return train.to(self.rows.device), [rows.to(self.rows.device) for rows in stop]

    def shares(self) -> list[list[float]]:
        """Walk to the end; return the share that each classifier gets right of what its fit has scored."""
        passes = 0
        while self.live and passes <= MOST:
            for _ in range(PASSES):
                order = torch.from_numpy(self.shuffles.permutation(self.train.shape[1])).to(self.rows.device)
                for start in range(0, len(order), BATCH):
                    self._step(self.train[:, order[start : start + BATCH]])
            passes += PASSES
            self._look()
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

    def _look(self) -> None:
        """Keep what is better than ever before; stop what has failed too often."""
        for place, fit in enumerate(self.live):
            shares = self._right(self.weights[place], self.stop[fit]).cpu().numpy()
            better = self.active[fit] & (shares > self.best[fit])
            self.best[fit][better] = shares[better]
            columns = torch.from_numpy(np.repeat(better, self.classes)).to(self.rows.device)
            self.kept[fit][:, columns] = self.weights[place][:, columns]
            failed = self.active[fit] & ~better
            self.active[fit] &= ~(failed & (self.failures[fit] >= TENACITY))
            self.failures[fit] += failed
        self._drop()

    def _drop(self) -> None:
        """Leave behind the fits all of whose classifiers have stopped."""
        walking = [place for place, fit in enumerate(self.live) if self.active[fit].any()]
        if len(walking) < len(self.live):
            self.live = [self.live[place] for place in walking]
            self.train, self.weights, self.decay = self.train[walking], self.weights[walking], self.decay[walking]
            self.moment, self.square = self.moment[walking], self.square[walking]

    def _right(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Return (R,) shares of `rows` that (D + 1, R·C) weights get right."""
        guess = (self.rows[rows] @ weights).view(len(rows), -1, self.classes).argmax(dim=2)
        return guess.eq(self.targets[rows].unsqueeze(1)).double().mean(dim=0)


def first_weights(width: int, classes: int, seed: int) -> Tensor:
    """Return (width + 1, classes): `nn.Linear`'s first weights after `torch.manual_seed(seed)`, the bias last."""
    generator = torch.Generator().manual_seed(seed)
    bound = width**-0.5
    weight = torch.empty(classes, width).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator)
    return torch.cat([weight.T, bias[None]])
