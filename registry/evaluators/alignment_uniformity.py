"""Alignment of positive pairs and uniformity of all embeddings."""

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
"""Maximum number of rows and columns of distances in memory."""


@EVALUATORS.register("alignment_uniformity")
class AlignmentUniformity(PairEvaluator):
    """Measure alignment of positive pairs and uniformity on the unit sphere, both better if lower.

    With embeddings of unit length (norms below 1e-8 count as 1e-8, values that are not finite as 0):
    alignment = mean of ‖x − y‖^α over positive pairs, whose gold score exceeds `threshold`;
    uniformity = log of the mean of exp(−t·‖x − y‖²) over all pairs of sentences, in double precision;
    uniformity_batched = the mean of the same over the first sentences of each batch of consecutive pairs.

    The last two differ for any encoder: a mean of logs is at most the log of the mean, and neighbors in a file come
    from one source, so they are more similar. Compare each only with values of the same kind.

    Shapes: n pairs of m distinct sentences → (m, D) embeddings; m² distances, computed in blocks.

    Source: Wang and Isola 2020; SimCSE (Gao et al. 2021) for STS-B as the data. `uniformity` as in Focal-InfoNCE's
    code, `uniformity_batched` as in MoCoSE's notebook. Both there and here an incomplete last batch is omitted, except
    if it is the only one.
    Doubtful: "> 4" or "≥ 4", and the split: > 4 on all of STS-B gives 1,491 pairs, the number that MoCoSE stored
    (methods/simcse.md S5: `threshold`, `inclusive`, `split`); whether a sentence counts as often as it occurs, as in
    Focal-InfoNCE's code (`sentences`); whether uniformity uses the sentences of all pairs or of the positive ones
    (`scope`).

    Args:
        dataset: Data set of scored pairs in the catalog.
        split: Split of the data set. "all" joins its splits.
        threshold: Gold score above which a pair is positive.
        inclusive: Count pairs at the threshold as positive.
        alpha: Exponent of the distance in alignment.
        t: Weight of close pairs in uniformity.
        scope: Pairs whose sentences uniformity uses.
        sentences: Counting of repeated sentences: every one of the "occurrences", or only "distinct" ones. Batches
            always contain every occurrence.
        batch_size: Number of pairs in a batch of `uniformity_batched`, in the order of the data.

    Example:
        [evaluators.geometry]
        name = "alignment_uniformity"
        dataset = "stsb_open"
        split = "dev"
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
        """Return alignment, uniformity and batched uniformity."""
        pairs = self.pairs()
        positive = self._positive([pair.score for pair in pairs])
        scope = positive if self.scope == "positive" else torch.ones_like(positive)
        made = pair_vectors(pairs, encode)
        points = unit(made.vectors)
        kept = points[made.first[scope]]
        full = range(0, len(kept) - self.batch_size + 1, self.batch_size)
        batches = [kept[start : start + self.batch_size] for start in full] or [kept]  # all rows if no batch is full
        apart = (points[made.first[positive]] - points[made.second[positive]]).norm(dim=1)
        return {
            "alignment": float(apart.pow(self.alpha).mean()),
            "uniformity": uniformity(points, self.t, self._counts(made, scope)),
            "uniformity_batched": sum(uniformity(each, self.t) for each in batches) / len(batches),
        }

    def _positive(self, gold: Sequence[float]) -> Tensor:
        """Return (n,): whether each pair is positive."""
        scores = torch.tensor(gold, dtype=torch.float64)
        found = scores >= self.threshold if self.inclusive else scores > self.threshold
        if not found.any():
            least = "at least" if self.inclusive else "above"
            raise CseError(
                f"alignment_uniformity: no gold score of '{self.dataset}/{self.split}' is {least} {self.threshold:g} "
                f"(highest: {float(scores.max()):g})",
                "lower `threshold`, or set inclusive = true if the highest score is the threshold",
                code="evaluators.no_such_score",
            )
        return found

    def _counts(self, made: PairVectors, scope: Tensor) -> Tensor:
        """Return (m,): the number of times that each sentence counts."""
        counts = made.counts(self.sentences, scope)
        if int(scope.sum()) < 2 or float(counts.sum()) < 2:
            raise CseError(
                f"alignment_uniformity: uniformity needs two pairs and two sentences, but "
                f"'{self.dataset}/{self.split}' has {int(scope.sum())} and {int(counts.sum())}",
                'set scope = "all", or use a larger data set',
                code="evaluators.too_few_rows",
            )
        return counts


def uniformity(vectors: Tensor, t: float, counts: Tensor | None = None, block: int = BLOCK) -> float:
    """Return the log of the mean of exp(−t·‖x − y‖²) over all pairs of two different places, computed in blocks.

    Args:
        vectors: (m, D) double, at least two places.
        t: Weight of close pairs.
        counts: (m,) number of places with each vector. Default: one.
        block: Maximum number of rows and columns of distances in memory.
    """
    weights = vectors.new_ones(len(vectors)) if counts is None else counts
    vectors, weights = vectors[weights > 0], weights[weights > 0]
    squares = vectors.square().sum(dim=1)
    # Places with the same vector have distance 0.
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
