"""Contrastive tension: is it one sentence twice or two? Asked of the dot product of two encoders' vectors."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from registry import LOSSES, Tune
from registry.errors import CseError
from registry.types import Loss, Sentences


@LOSSES.register("dot_classification")
class DotClassification(Loss):
    """Tell pairs of the same sentence from pairs of two by binary cross-entropy of the sigmoid of the dot product.

    ℓ = Σ₊ −log σ(xᵢ·yᵢ) + Σ₋ −log(1 − σ(xᵢ·yⱼ)), x the anchor's and y the positive's vectors as they are: no
    normalisation, no temperature. Which pairs there are says `pairs`; with "all", row i is one positive pair and makes
    K negative ones with rows i + 1 … i + K, counted round the batch (fewer where it has no K + 1 rows).

    Shapes: anchor, positive (N, D); result a scalar.

    Source: CT (Carlsson et al. 2021, section 3) and its code (`Training.py`, `ContrastiveTensionModel.py`,
    methods/ct.md). Doubtful: sentences of negative pairs are in no other pair there (CT2, `pairs`); mean in the
    authors' code, sum in sentence-transformers (CT3, `reduction`). Dot products of un-normalised vectors are in the
    hundreds (CT5): losses are computed in single precision at least.

    Args:
        negatives: K, negative pairs for each positive one.
        pairs: "all" uses each row for both. "separate", as the authors compose a batch, lets the first N/(K+1) rows
            (one at least) be positive pairs only, and pairs each of the others with the next of them.
        reduction: "mean" over all pairs, or "sum".
    """

    def __init__(
        self,
        negatives: Annotated[int, Field(gt=0), Tune(1, 15)] = 7,
        pairs: Literal["all", "separate"] = "all",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.negatives, self.pairs, self.reduction = negatives, pairs, reduction

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch.

        Raises:
            CseError: A batch of fewer than three rows is to be divided.
        """
        rows, apart = len(anchor), self.pairs == "separate"
        if apart and rows < 3:
            raise CseError(
                f'pairs = "separate" needs a positive and two more sentences, and the batch has {rows}',
                'set train.batch_size to 3 or more, or pairs to "all"',
            )
        same = max(1, rows // (self.negatives + 1)) if apart else rows
        first, second = (anchor[same:], positive[same:]) if apart else (anchor, positive)
        shifts = range(1, 2 if apart else min(self.negatives, rows - 1) + 1)
        together = (anchor[:same] * positive[:same]).sum(-1)
        different = [(first * second.roll(-shift, 0)).sum(-1) for shift in shifts]
        values = torch.cat([softplus(-together), *map(softplus, different)])
        return values.mean() if self.reduction == "mean" else values.sum()
