"""Sentence pairs as points on the unit sphere, and how these lie there. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from registry.catalogue import Pair
from registry.evaluators.sts import one_line
from registry.types import Encode

Counted = Literal["occurrences", "distinct"]
"""Whether a sentence counts once for each pair side it is, or once."""

SHORTEST = 1e-8
"""Norm that shorter vectors are divided by, so that zeros stay zeros."""
BLOCK = 2048
"""Rows and columns of distances held at a time."""


@dataclass(frozen=True)
class PairVectors:
    """Pairs and their sentences' vectors.

    Args:
        vectors: (m, D) double, one row a distinct sentence; what is not finite is 0.
        first: (n,) row of each pair's first sentence.
        second: (n,) row of its second.
    """

    vectors: Tensor
    first: Tensor
    second: Tensor

    def counts(self, how: Counted, pairs: Tensor | None = None) -> Tensor:
        """Return (m,) double: how often each sentence counts.

        Args:
            how: Every occurrence, or each sentence of the pairs once.
            pairs: (n,) which pairs' sentences; all if left out.
        """
        rows = (
            torch.cat([self.first, self.second])
            if pairs is None
            else torch.cat([self.first[pairs], self.second[pairs]])
        )
        found = torch.bincount(rows, minlength=len(self.vectors)).double()
        return found if how == "occurrences" else found.clamp(max=1)


def pair_vectors(pairs: Sequence[Pair], encode: Encode) -> PairVectors:
    """Return the vectors of the pairs' sentences, whose white space is reduced to single blanks."""
    sides = [(one_line(pair.first), one_line(pair.second)) for pair in pairs]
    rows = {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}
    vectors = encode(list(rows)).double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    first, second = (torch.tensor([rows[side[place]] for side in sides]) for place in (0, 1))
    return PairVectors(vectors, first, second)


def unit(vectors: Tensor) -> Tensor:
    """Return (n, D) with rows of length 1, those shorter than `SHORTEST` excepted."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=SHORTEST)


def uniformity(vectors: Tensor, t: float, counts: Tensor | None = None, block: int = BLOCK) -> float:
    """Return log of the mean of exp(−t·‖x − y‖²) over all pairs of two different places, blocks of them at a time.

    Args:
        vectors: (m, D) double; at least two places.
        t: Weight of close pairs.
        counts: (m,) places that hold each vector; one if left out.
        block: Rows and columns of distances held at a time.
    """
    weights = vectors.new_ones(len(vectors)) if counts is None else counts
    vectors, weights = vectors[weights > 0], weights[weights > 0]
    squares = vectors.square().sum(dim=1)
    # Places that hold the same vector are no distance apart.
    total = float((weights * (weights - 1)).sum() / 2)
    for row in range(0, len(vectors), block):
        own = slice(row, row + block)
        for column in range(row, len(vectors), block):
            other = slice(column, column + block)
            apart = squares[own, None] + squares[other] - 2 * (vectors[own] @ vectors[other].T)
            near = apart.clamp_(min=0).mul_(-t).exp_()
            if row == column:
                near = near.triu_(diagonal=1)
            total += float(weights[own] @ near @ weights[other])
    places = float(weights.sum())
    return float(torch.tensor(total / (places * (places - 1) / 2), dtype=torch.float64).log())
