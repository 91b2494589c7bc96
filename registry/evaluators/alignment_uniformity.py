"""Alignment and uniformity: are similar sentences close, and all sentences spread out?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.pairs import Counted, PairEvaluator, PairVectors, pair_vectors, unit
from registry.types import DatasetName, Encode

BLOCK = 2048
"""Rows and columns of distances held at a time."""


@EVALUATORS.register("alignment_uniformity")
class AlignmentUniformity(PairEvaluator):
    """Measure how close positive pairs lie and how evenly sentences cover the unit sphere; both better when lower.

    With vectors of unit length (norms below 1e-8 count as 1e-8, what is not finite as 0):
    alignment = mean of ‖x − y‖^α over positive pairs, which are those with a gold score above `threshold`;
    uniformity = log of the mean of exp(−t·‖x − y‖²) over all pairs of sentences, none left out, in double precision;
    uniformity_batched = the mean, over batches of consecutive pairs, of the same over a batch's first sentences.

    The last two differ for any encoder: a mean of logs is at most the log of the mean, and neighbours in a file are of
    one source, hence more alike than sentences drawn from all of it. Compare each with its own kind only.

    Shapes: n pairs of m distinct sentences → (m, D) vectors; m² distances, a block at a time.

    Source: Wang and Isola 2020; SimCSE (Gao et al. 2021) for STS-B as the data. Exact as in Focal-InfoNCE's code;
    batched as in MoCoSE's notebook, which drops an incomplete last batch, as here. Fewer pairs than fill one are one.
    Doubtful: "> 4" or "≥ 4" and which split: > 4 on all of STS-B are 1,491 pairs, the number MoCoSE stored
    (methods/simcse.md S5: `threshold`, `inclusive`, `split`); whether a sentence counts as often as it occurs, as in
    Focal-InfoNCE's code (`sentences`); whether uniformity is over all pairs' sentences or the positive ones (`scope`).

    Args:
        dataset: Name in the data catalogue, scored pairs.
        split: Split of it; "all" joins its splits.
        threshold: Gold score that positive pairs exceed.
        inclusive: Count pairs at the threshold as positive.
        alpha: Power of the distance in alignment.
        t: Weight of close pairs in uniformity.
        scope: Pairs whose sentences uniformity is about.
        sentences: Every occurrence counts, or each distinct sentence once; the batches always hold every occurrence.
        batch_size: Pairs a batch of `uniformity_batched`, in the order of the data.
    """

    metric: ClassVar[str] = "uniformity"
    metrics: ClassVar[tuple[str, ...]] = ("uniformity", "alignment", "uniformity_batched")
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "geometry": ("alignment_uniformity",),
        "all": ("alignment_uniformity",),
    }

    def __init__(
        self,
        dataset: DatasetName = "stsb",
        split: str = "all",
        threshold: float = 4.0,
        inclusive: bool = False,
        alpha: Annotated[float, Field(gt=0, le=10)] = 2.0,
        t: Annotated[float, Field(gt=0, le=100)] = 2.0,
        scope: Literal["all", "positive"] = "all",
        sentences: Counted = "occurrences",
        batch_size: Annotated[int, Field(ge=2)] = 64,
    ) -> None:
        self.dataset, self.split, self.threshold, self.inclusive = dataset, split, threshold, inclusive
        self.alpha, self.t, self.scope = alpha, t, scope
        self.sentences: Counted = sentences
        self.batch_size = batch_size

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return alignment, and uniformity of everything and batch by batch."""
        pairs = self.pairs()
        positive = self._positive([pair.score for pair in pairs])
        scope = positive if self.scope == "positive" else torch.ones_like(positive)
        made = pair_vectors(pairs, encode)
        points = unit(made.vectors)
        apart = (points[made.first[positive]] - points[made.second[positive]]).norm(dim=1)
        return {
            "alignment": float(apart.pow(self.alpha).mean()),
            "uniformity": uniformity(points, self.t, self._counts(made, scope)),
            "uniformity_batched": self._batched(points[made.first[scope]]),
        }

    def _positive(self, gold: Sequence[float]) -> Tensor:
        """Return (n,) which pairs are positive."""
        scores = torch.tensor(gold, dtype=torch.float64)
        found = scores >= self.threshold if self.inclusive else scores > self.threshold
        if not found.any():
            least = "at least" if self.inclusive else "above"
            raise CseError(
                f"alignment_uniformity, {self.dataset}/{self.split}: no pair scores {least} {self.threshold:g}; the "
                f"highest is {float(scores.max()):g}",
                "lower `threshold`, or set inclusive = true where the highest score is the threshold",
            )
        return found

    def _counts(self, made: PairVectors, scope: Tensor) -> Tensor:
        """Return (m,) how often each sentence counts."""
        counts = made.counts(self.sentences, scope)
        if int(scope.sum()) < 2 or float(counts.sum()) < 2:
            raise CseError(
                f"alignment_uniformity, {self.dataset}/{self.split}: uniformity needs two pairs and two sentences; "
                f"there are {int(scope.sum())} and {int(counts.sum())}",
                'set scope = "all", or take a larger data set',
            )
        return counts

    def _batched(self, points: Tensor) -> float:
        """Return the mean of the full batches' uniformities, or that of all of (n, D) where they fill none."""
        full = range(0, len(points) - self.batch_size + 1, self.batch_size)
        batches = [points[start : start + self.batch_size] for start in full] or [points]
        return sum(uniformity(batch, self.t) for batch in batches) / len(batches)


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
