"""Logistic regressions of one data set, all folds and all L2 weights at once, to the optimum. Registers nothing.

Each minimises mean cross-entropy + λ/2 ‖(W, b)‖² over its own rows: what SentEval's Adam descends, but to the end. All
read the same matrix of rows, so one product serves all; a row outside a classifier's own weighs nothing in it.

With H = X′X over all rows, no Hessian exceeds c·H/n + λI (Böhning 1992; c = 1/4 for two classes, 1/2 for more). A step
of gradient / (c·s/n + λ) in H's eigenbasis therefore never overshoots and needs no line search. Nesterov's momentum,
set back where it points uphill (O'Donoghue and Candès 2015), makes it fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from registry.evaluators.folds import Rows
from registry.evaluators.protocol import Fit

AT_ONCE = 2**23
"""Numbers a matrix of scores may have."""
LOOK = 10
"""Steps between two looks at who has arrived."""


class Logistic:
    """Linear layers trained to the optimum.

    Args:
        tolerance: What may be left to gain, in nats: g′Pg, with gradient g and step sizes P.
        most: Steps after which a classifier is taken as it is.
    """

    def __init__(self, tolerance: float = 1e-9, most: int = 3000) -> None:
        self.tolerance = tolerance
        self.most = most

    def __call__(self, features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
        """Return, a list for each of `fits`, the share of its `scored` that each L2 weight gets right."""
        problem = Problem.of(features, torch.from_numpy(labels).to(features.device))
        jobs = [(place, l2) for place, fit in enumerate(fits) for l2 in fit.l2]
        size = max(1, AT_ONCE // problem.wanted.numel())
        found: list[list[float]] = [[] for _ in fits]
        for start in range(0, len(jobs), size):
            part = jobs[start : start + size]
            weights = problem.solve([(fits[place].train, l2) for place, l2 in part], self.tolerance, self.most)
            for number, (place, _) in enumerate(part):
                found[place].append(problem.right(weights[:, number], fits[place].scored))
        return found


@dataclass(frozen=True)
class Problem:
    """The rows in the eigenbasis of their second moments. Two classes need one output, the second's; C need C.

    Args:
        rows: (n, E), E = D + 1 for the bias, which is penalised as SentEval's is.
        moments: (E,) eigenvalues of X′X.
        targets: (n,) class numbers.
        wanted: (n, O) what the outputs should be.
    """

    rows: Tensor
    moments: Tensor
    targets: Tensor
    wanted: Tensor

    @staticmethod
    def of(features: Tensor, targets: Tensor) -> Problem:
        """Return the problem of telling `targets` (n,) from `features` (n, D)."""
        padded = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        moments, basis = torch.linalg.eigh(padded.double().mT @ padded.double())
        wanted = torch.nn.functional.one_hot(targets).to(features)
        rows = padded @ basis.to(features)
        return Problem(
            rows, moments.clamp(min=0).to(features), targets, wanted[:, 1:] if wanted.shape[1] == 2 else wanted
        )

    @property
    def two(self) -> bool:
        """Whether there are two classes."""
        return self.wanted.shape[1] == 1

    def solve(self, jobs: Sequence[tuple[Rows, float]], tolerance: float, most: int) -> Tensor:
        """Return (E, J, O) weights, of each job's rows and L2 weight."""
        walk = Descent(self, jobs)
        found, live = torch.zeros_like(walk.weights), torch.arange(len(jobs), device=self.rows.device)
        for step in range(1, most + 1):
            left = walk.step()
            if step % LOOK and step < most:
                continue
            done = left < tolerance if step < most else torch.ones_like(left, dtype=torch.bool)
            found[:, live[done]] = walk.weights[:, done]
            live = live[~done]
            if not len(live):
                break
            walk.keep(~done)
        return found

    def right(self, weights: Tensor, scored: Rows) -> float:
        """Return the share of `scored` that (E, O) weights get right."""
        rows = torch.from_numpy(scored).to(self.rows.device)
        scores = self.rows[rows] @ weights
        guess = (scores[:, 0] > 0).long() if self.two else scores.argmax(dim=1)
        return float((guess == self.targets[rows]).double().mean())


class Descent:
    """J classifiers on their way; sizes: weights (E, J, O), shares (n, J), rates (E, J, 1), the rest (J)."""

    def __init__(self, problem: Problem, jobs: Sequence[tuple[Rows, float]]) -> None:
        self.problem = problem
        rows = problem.rows
        shares = np.zeros((len(rows), len(jobs)), dtype=np.float64)
        for number, (train, _) in enumerate(jobs):
            shares[train, number] = 1 / len(train)
        self.shares = torch.from_numpy(shares).to(rows)
        # Of two outputs with opposite weights ±w/2, λ/2 of both squares is λ/4 of w's.
        self.l2 = rows.new_tensor([l2 for _, l2 in jobs]) * (0.5 if problem.two else 1)
        bound = (0.25 if problem.two else 0.5) * problem.moments[:, None] * self.shares.amax(dim=0) + self.l2
        self.rates = bound.reciprocal()[:, :, None]
        self.weights = rows.new_zeros(rows.shape[1], len(jobs), problem.wanted.shape[1])
        self.ahead = self.weights
        self.age = rows.new_ones(len(jobs))

    def step(self) -> Tensor:
        """Take one; return (J,) g′Pg of where it was taken from."""
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
        """Go on with the classifiers that (J,) `which` marks."""
        self.weights, self.ahead, self.rates = self.weights[:, which], self.ahead[:, which], self.rates[:, which]
        self.shares, self.l2, self.age = self.shares[:, which], self.l2[which], self.age[which]
